// A Studio without a screen: keeps one VM running, and starts it anew when it is stuck or dies.
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'

const here = dirname(fileURLToPath(import.meta.url))
const { GATEHOUSE_URL, GATEHOUSE_TOKEN, GATEHOUSE_NAME, GATEHOUSE_MODULES, GATEHOUSE_PATIENCE } = process.env
const patience = Number(GATEHOUSE_PATIENCE ?? 10) * 1000
const say = (event, more) => process.stdout.write(JSON.stringify({ event, ...more }) + '\n')

const workerData = {
  modules: GATEHOUSE_MODULES,
  shim: here,
  plugin: join(here, '..', 'plugin', 'src'),
  settings: {
    'gatehouse.url': GATEHOUSE_URL,
    'gatehouse.token': GATEHOUSE_TOKEN,
    'gatehouse.name': GATEHOUSE_NAME ?? 'headless',
  },
}

function start() {
  let heard = Date.now() + 20_000 // loading takes its time
  const worker = new Worker(join(here, 'vm.mjs'), { workerData })
  const watch = setInterval(() => {
    if (Date.now() - heard > patience) {
      say('stuck')
      void worker.terminate()
    }
  }, 100)
  worker.on('message', (message) => {
    if (message.line !== undefined) say('print', { line: message.line })
    else heard = Date.now()
  })
  worker.on('error', (error) => say('died', { message: error.message }))
  worker.on('exit', () => {
    clearInterval(watch)
    setTimeout(start, 200)
  })
  say('started')
}

// Whoever started this holds the other end: when that is gone, so are we.
process.stdin.on('end', () => process.exit()).resume()
start()
