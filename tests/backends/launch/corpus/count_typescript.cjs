// Prints the names that a module exports, as the TypeScript compiler sees them.
const ts = require(process.argv[2]);
const program = ts.createProgram([process.argv[3]], {allowJs: true, moduleResolution: 2, module: 1, target: 9, skipLibCheck: true, types: []});
const checker = program.getTypeChecker();
const source = program.getSourceFile(process.argv[3]);
const symbol = checker.getSymbolAtLocation(source);
const found = new Set();
for (let each of symbol ? checker.getExportsOfModule(symbol) : []) {
  const name = each.getName();
  if (name.startsWith("_") || name === "default") continue;
  if (each.flags & ts.SymbolFlags.Alias) each = checker.getAliasedSymbol(each);
  const declaration = each.declarations && each.declarations[0];
  if (!declaration) continue;
  if (each.flags & ts.SymbolFlags.NamespaceModule && !(each.flags & ts.SymbolFlags.Class) && !(each.flags & ts.SymbolFlags.Function)) continue;
  if (!declaration.getSourceFile().fileName.startsWith(process.argv[4])) continue;
  found.add(name);
  if (each.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface)) {
    for (const member of each.members ? each.members.values() : []) {
      const flags = member.declarations ? ts.getCombinedModifierFlags(member.declarations[0]) : 0;
      const label = member.getName();
      if (flags & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) continue;
      if (label.startsWith("_") || label.startsWith("#") || (member.flags & ts.SymbolFlags.TypeParameter)) continue;
      found.add(`${name}.${label}`);
    }
  }
}
console.log(JSON.stringify([...found].sort()));
