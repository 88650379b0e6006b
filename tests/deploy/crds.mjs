// Standard input: [{module, object}, …]; standard output: for each what is wrong with it, or null.
import { text } from "node:stream/consumers";

const said = [];
for (const { module, object } of JSON.parse(await text(process.stdin))) {
  const model = (await import(module))[object.kind];
  try {
    await new model(object).validate();
    said.push(null);
  } catch (error) {
    said.push(`${object.kind}: ${error.message}`);
  }
}
console.log(JSON.stringify(said));
