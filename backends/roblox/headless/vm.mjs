// One Luau VM that runs the plugin; implements the host functions that the Luau shim calls.
import { randomUUID } from 'node:crypto'
import { readFileSync, readdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parentPort, workerData } from 'node:worker_threads'

const { modules, plugin, shim, settings, context, testArguments } = workerData
// Studio rejects a longer request body.
const MAX_REQUEST_BYTES = 1024 * 1024
const { LuauState } = await import(pathToFileURL(join(modules, 'luau-web/src/index.js')).href)
const { reflection, types } = createRequire(join(modules, 'x.js'))('rbx-dom')

const PRIMITIVE = new Set(['Bool', 'Int32', 'Int64', 'Float32', 'Float64', 'String'])

function classOf(name) {
  const known = reflection.class(name)
  if (!known) return undefined
  const creatable = !known.Tags.includes('NotCreatable')
  return JSON.stringify({ creatable, service: known.Tags.includes('Service'), superclasses: reflection.superclasses(name) })
}

function propertyOf(className, name) {
  const owner = reflection.superclasses(className).find((each) => reflection.property(each, name))
  if (!owner) return undefined
  const { Scriptability, DataType } = reflection.property(owner, name)
  const [kind, value] = Object.entries(reflection.defaultProperty(className, name) ?? {})[0] ?? []
  return JSON.stringify({
    kind: DataType.Value,
    enum: DataType.Enum,
    scriptable: Scriptability !== 'None',
    writable: Scriptability === 'ReadWrite' || Scriptability === 'Write' || Scriptability === 'Custom',
    default: PRIMITIVE.has(kind) ? value : undefined,
  })
}

function brickColor(name) {
  try {
    return types.brickColorByName(name)
  } catch {
    return undefined
  }
}

// Luau is not re-entrant: resumptions of threads are queued.
let turn = Promise.resolve()
let resume
const later = (id, ok, value) => {
  turn = turn
    .then(() => resume(id, ok, value))
    .catch((error) => {
      parentPort.postMessage({ line: String(error) })
      // An aborted VM answers nothing more: end the worker, so that it is started again.
      if (error instanceof WebAssembly.RuntimeError) setTimeout(() => process.exit(1), 50)
    })
}

async function request(id, head, text) {
  const { Url, Method, Headers } = JSON.parse(head)
  const Body = text === '' ? undefined : text
  if (Body !== undefined && Buffer.byteLength(Body) > MAX_REQUEST_BYTES) {
    later(id, false, 'Post data too large. Limit: 1024 KB.')
    return
  }
  try {
    const response = await fetch(Url, { method: Method, headers: Headers, body: Body })
    later(id, true, JSON.stringify({ StatusCode: response.status, Headers: Object.fromEntries(response.headers), Body: await response.text() }))
  } catch (error) {
    later(id, false, `HttpError: ${error.cause?.code ?? error.message}`)
  }
}

let state
function compile(id, source, name) {
  // Called from the event loop, because the compiler must not be called from inside the VM.
  setImmediate(() => {
    try {
      // On the same line, so that line numbers in errors match the source.
      later(id, true, state.loadstring(`local script = ...; ${source}`, name, true))
    } catch (error) {
      later(id, false, error.message)
    }
  })
}

state = await LuauState.createAsync({
  __print: (line) => parentPort.postMessage({ line: String(line) }),
  __now: () => new Date().toISOString(),
  __guid: () => randomUUID(),
  __class: classOf,
  __property: propertyOf,
  __enum: (name) => {
    const known = reflection.enum(name)
    return known ? JSON.stringify(known.items) : undefined
  },
  __brickColor: brickColor,
  __settings: JSON.stringify(settings),
  __context: context ?? 'edit',
  __testArguments: JSON.stringify(testArguments ?? {}),
  __sleep: (id, seconds) => void setTimeout(() => later(id, true), seconds * 1000),
  __http: (id, head, body) => void request(id, head, body),
  __compile: (id, source, name) => void compile(id, source, name),
})

async function load(name) {
  return (await state.loadstring(readFileSync(join(shim, name), 'utf8'), name, true)())[0]
}

resume = await load('runtime.luau')
await load('json.luau')
await load('datatypes.luau')
await load('instances.luau')
await load('history.luau')
const start = await load('services.luau')

const read = (name) => readFileSync(join(plugin, name), 'utf8')
const names = readdirSync(plugin).filter((name) => name.endsWith('.luau') && !name.startsWith('init.'))
const sources = Object.fromEntries(names.map((name) => [name.slice(0, -'.luau'.length), read(name)]))
await start(JSON.stringify({ main: read('init.server.luau'), modules: sources }))
setInterval(() => parentPort.postMessage({ alive: true }), 100)
