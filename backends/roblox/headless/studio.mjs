// A headless Studio: runs one VM and restarts it when it hangs or exits.
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Worker } from 'node:worker_threads'

const here = dirname(fileURLToPath(import.meta.url))
const { GATEHOUSE_URL, GATEHOUSE_TOKEN, GATEHOUSE_NAME, GATEHOUSE_MODULES, GATEHOUSE_PATIENCE, GATEHOUSE_CONTEXT, GATEHOUSE_TEST_ARGUMENTS } =
  process.env
const stallTimeout = Number(GATEHOUSE_PATIENCE ?? 10) * 1000
const logEvent = (event, more) => process.stdout.write(JSON.stringify({ event, ...more }) + '\n')

const workerData = {
  modules: GATEHOUSE_MODULES,
  shim: here,
  plugin: join(here, '..', 'plugin', 'src'),
  context: GATEHOUSE_CONTEXT ?? 'edit',
  testArguments: JSON.parse(GATEHOUSE_TEST_ARGUMENTS ?? '{}'),
  settings: {
    'gatehouse.url': GATEHOUSE_URL,
    'gatehouse.token': GATEHOUSE_TOKEN,
    'gatehouse.name': GATEHOUSE_NAME ?? 'headless',
  },
}

function start() {
  let lastHeartbeat = Date.now() + 20_000 // allow 20 s for loading
  const worker = new Worker(join(here, 'vm.mjs'), { workerData })
  const watch = setInterval(() => {
    if (Date.now() - lastHeartbeat > stallTimeout) {
      logEvent('stuck')
      void worker.terminate()
    }
  }, 100)
  worker.on('message', (message) => {
    if (message.line !== undefined) logEvent('print', { line: message.line })
    else lastHeartbeat = Date.now()
  })
  worker.on('error', (error) => logEvent('died', { message: error.message }))
  worker.on('exit', () => {
    clearInterval(watch)
    setTimeout(start, 200)
  })
  logEvent('started')
}

// The parent process holds the other end of standard input: exit when it closes.
process.stdin.on('end', () => process.exit()).resume()
start()
