// A mock of the service that follows `/api/openapi.json`, in memory. For development only.

import { createHash } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'

import { BODIES, packPoses, posesOf, sceneOf } from './bodies.mjs'
import { OwnerRoutes } from './mock-owner.mjs'
import { pairwiseAnswers } from './mock-rankings.mjs'

const FPS = 30
const FRAMES = 45
const sha = (content) => createHash('sha256').update(content).digest('hex')

const WAITS = 'All comparisons are labelled. The next one follows after about 12,000 more steps, in half a minute.'

/** A mock service; POST /mock changes `control`. */
export class Mock {
  constructor({ video = null } = {}) {
    this.control = { offline: false, signedOut: false, slowMs: 0, role: 'owner' }
    this.media = new Map()
    this.listeners = new Set()
    this.requests = new Map()
    this.leases = new Map()
    this.owners = new OwnerRoutes(this)
    this.log = []
    const hasVideo = video !== null && existsSync(video)
    this.video = hasVideo ? this.addVideo(readFileSync(video)) : null
    this.experiments = new Map(
      [
        this.make('backflip', 'Hopper-v1', 'hopper', {
          asked: 175, phase: 'waiting', step: 0, instructions: 'Prefer the clip that comes closer to a backflip.',
          message: 'Waiting for labels: 138 of 175 comparisons are left.', answered: 37,
        }),
        this.make('humanoid-walk', 'Humanoid-v1', 'humanoid', {
          asked: 400, phase: 'training', step: 1_214_000, answered: 210, target: 700,
          instructions: 'Prefer the clip that walks more like a person.',
          message: 'Training: 1,214,000 of 3,000,000 steps, 4,100 steps a second.',
        }),
        this.make('calm', 'Hopper-v1', 'hopper', {
          asked: 60, phase: 'training', step: 640_000, answered: 60, target: 200, instructions: '',
          message: 'Training: 640,000 of 3,000,000 steps, 24,000 steps a second.',
        }),
        this.make('sorted', 'Hopper-v1', 'hopper', {
          asked: 260, phase: 'training', step: 420_000, answered: 240, target: 400, sorts: 60,
          instructions: 'Prefer the clip that hops farther.',
          message: 'Training: 420,000 of 3,000,000 steps, 24,000 steps a second.',
        }),
        this.make('shapes', 'Gallery-v0', 'gallery', {
          asked: 9, phase: 'finished', step: 3_000_000, answered: 2, instructions: 'One of every shape.',
          message: 'Finished: 3,000,000 steps in 2 h 5 min.',
        }),
        this.make('just-begun', 'Hopper-v1', 'hopper', {
          asked: 0, phase: 'random', step: 0, answered: 0, instructions: '', bare: true,
          message: 'Random actions for the first clips: 12,400 of 31,500 steps.',
        }),
        ...(hasVideo ? [this.make('balance', 'CartPole-v1', 'video', {
          asked: 30, phase: 'lost', step: 90_000, answered: 4, instructions: 'Prefer the steadier pole.',
          message: 'No reports for 2 min: the training process may have ended. Run the same command to continue.',
        })] : []),
      ].map((experiment) => [experiment.name, experiment]),
    )
  }

  make(name, envId, kind, more) {
    const experiment = {
      name, envId, kind, numSteps: 3_000_000, target: null, comparisons: new Map(), rows: [], ...more,
    }
    for (let i = 0; i < more.asked; i++) this.ask(experiment)
    for (const comparison of [...experiment.comparisons.values()].slice(0, more.answered)) {
      comparison.answer = more.sorts
        ? answerOf(comparison) : ['left', 'right', 'left', 'equal', 'right', 'cannot_tell'][comparison.id % 6]
      comparison.answeredAt = new Date(Date.now() - 1000 * (200 - comparison.id % 200)).toISOString()
    }
    for (let i = 0; i < (more.step > 0 ? 120 : 0); i++) experiment.rows.push(rowOf(i, more.step))
    if (!more.bare) experiment.episode = this.episodeOf(experiment, 300)
    return experiment
  }

  ask(experiment) {
    const seed = (this.nextId ?? 0) + 1
    const seeds = experiment.sorts ? neighbours(seed, experiment.sorts) : [seed * 2, seed * 2 + 1]
    return this.add(experiment, seeds.map((one) => [this.clip(experiment.kind, one, FRAMES), one]))
  }

  /** Add a comparison of two clips, each with its seed. */
  add(experiment, [[left, leftSeed], [right, rightSeed]]) {
    this.nextId = (this.nextId ?? 0) + 1
    const comparison = {
      id: this.nextId, number: experiment.comparisons.size + 1, experiment: experiment.name, asked_at_step: experiment.step,
      left, right, seeds: [leftSeed, rightSeed], answer: null,
    }
    experiment.comparisons.set(comparison.id, comparison)
    return comparison
  }

  clip(kind, seed, numFrames) {
    if (kind === 'video') return this.video
    const body = BODIES[kind]
    const random = (i) => ((Math.sin(seed * 12.9898 + i * 78.233) * 43758.5453) % 1 + 1) % 1
    const gait = {
      start: 20 * random(0), lean: 4 * random(1) - 2, pace: 4 + 6 * random(2), reach: 0.2 + random(3), speed: 2 * random(4),
    }
    const hash = sha(`${kind} ${seed} ${numFrames}`)
    this.media.set(`/api/v1/clips/${hash}`, () =>
      Buffer.from(packPoses(posesOf(body, gait, numFrames, FPS), numFrames, FPS, seed % 2)))
    const scene = JSON.stringify(sceneOf(body))
    const sceneUrl = `/api/v1/scenes/${sha(scene)}`
    this.media.set(sceneUrl, () => Buffer.from(scene))
    return {
      hash, kind: 'poses', url: `/api/v1/clips/${hash}`, scene_url: sceneUrl, num_frames: numFrames,
      fps: FPS, seconds: numFrames / FPS, speed: Math.min(numFrames / FPS, 1),
    }
  }

  addVideo(bytes) {
    const hash = sha(bytes)
    this.media.set(`/api/v1/clips/${hash}`, () => bytes)
    return { hash, kind: 'video', url: `/api/v1/clips/${hash}`, scene_url: null, num_frames: FRAMES, fps: FPS, seconds: FRAMES / FPS, speed: 1 }
  }

  episodeOf(experiment, numFrames) {
    const predicted = Array.from({ length: experiment.kind === 'video' ? FRAMES : numFrames }, (_, i) =>
      Math.sin(i / 14) * 0.8 + Math.sin(i / 5) * 0.25 + 0.4)
    return {
      clip: this.clip(experiment.kind, 7, numFrames), predicted_rewards: predicted,
      predicted_return: 96.3, true_return: 812.4, step: experiment.step,
    }
  }

  progressOf({ comparisons, target, sorts }) {
    const all = [...comparisons.values()]
    const answered = all.filter(({ answer }) => answer !== null).length
    return {
      mine: answered, answered, asked: all.length, target, waiting: all.length - answered,
      message: answered < all.length ? '' : WAITS,
      clips: sorts ? { compared: new Set(all.flatMap(({ seeds }) => seeds)).size, target: sorts } : null,
      newest_label: this.log.length,
    }
  }

  summaryOf(experiment) {
    const { name, envId, phase, message, step, numSteps, rows, instructions, episode = null } = experiment
    return {
      name, env_id: envId, phase, message, step, num_steps: numSteps,
      steps_per_second: phase === 'training' ? 24_000 : null, progress: this.progressOf(experiment),
      sparkline: rows.filter((_, i) => i % 3 === 0).map((row) => row.true_return), instructions,
      updated_at: new Date().toISOString(), is_running: !['finished', 'stopped', 'lost'].includes(phase),
      first_episode: null, latest_episode: episode, is_archived: false,
      num_missing: phase === 'waiting' ? 7 : 0, waiting_since: null, warnings: [], is_extendable: phase === 'finished',
      num_fits: Math.floor(this.progressOf(experiment).answered / 3),
    }
  }

  /** Respond to a request, or return false for a path outside the API. */
  async handle(request, response) {
    const url = new URL(request.url, 'http://mock')
    if (url.pathname === '/mock' && request.method === 'POST') {
      return this.command(JSON.parse(await bodyOf(request)), response)
    }
    if (!url.pathname.startsWith('/api/v1/')) return false
    if (this.control.slowMs > 0) await new Promise((go) => setTimeout(go, this.control.slowMs))
    if (this.control.offline) return request.socket.destroy(), true
    if (this.control.signedOut) return problem(response, 401, 'Unauthorized', 'No valid access token.')
    const media = this.media.get(url.pathname)
    if (media !== undefined) {
      const type = url.pathname.includes('/scenes/') ? 'application/json'
        : url.pathname.endsWith(this.video?.hash ?? '-') ? 'video/mp4' : 'application/octet-stream'
      return send(response, 200, media(), type, { 'cache-control': 'private, max-age=31536000, immutable' })
    }
    return this.route(request, response, url)
  }

  async route(request, response, url) {
    const path = url.pathname.slice('/api/v1'.length).split('/').slice(1).map(decodeURIComponent)
    if (path[0] === 'events') return this.listen(response, url.searchParams.get('experiment'))
    if (path[0] === 'labels' && request.method === 'POST') {
      return json(response, this.saveLabels(JSON.parse(await bodyOf(request)).labels))
    }
    const body = ['POST', 'PUT', 'PATCH'].includes(request.method) ? JSON.parse((await bodyOf(request)) || '{}') : {}
    const owned = this.owners.answer(request.method, path, url.searchParams, body)
    if (owned === null) return response.writeHead(204).end(), true
    if (owned?.problem) return problem(response, owned.problem, owned.title, owned.detail)
    if (owned?.file) return send(response, 200, owned.file, 'application/x-ndjson', { 'content-disposition': 'attachment; filename="labels.jsonl"' })
    if (owned !== undefined) return json(response, owned)
    if (path[0] !== 'experiments') return problem(response, 404, 'Not Found', 'There is no such page.')
    if (path.length === 1) {
      return json(response, { experiments: [...this.experiments.values()].map((one) => this.summaryOf(one)) })
    }
    const experiment = this.experiments.get(path[1])
    if (experiment === undefined) {
      return problem(response, 404, 'Not Found', `There is no experiment named ${path[1]}.`)
    }
    if (path.length === 2) {
      const metrics = experiment.rows.at(-1) ?? {}
      return json(response, { ...this.summaryOf(experiment), ...this.owners.detailOf(experiment), config: { agent: 'ppo', selector: 'disagreement', seed: 0 }, metrics })
    }
    if (path[2] === 'metrics') {
      const after = Number(url.searchParams.get('after') ?? 0)
      return json(response, { rows: experiment.rows.filter(({ id }) => id > after) })
    }
    if (path[2] === 'effect') return json(response, effectOf(experiment))
    if (path[2] === 'labels') return json(response, { labels: labelsOf(experiment, url) })
    if (path[2] === 'rankings') return json(response, this.ranking(experiment, path[3], body))
    const excluded = new Set(url.searchParams.getAll('exclude').map(Number))
    const waiting = [...experiment.comparisons.values()].filter(({ id, answer }) => answer === null && !excluded.has(id))
    const limit = Number(url.searchParams.get('limit') ?? 4)
    return json(response, { comparisons: waiting.slice(0, limit).map((one) => this.lease(one)), progress: this.progressOf(experiment) })
  }

  saveLabels(labels) {
    const receipt = { accepted: [], rejected: [] }
    for (const label of labels) {
      const comparison = this.find(label.comparison_id)
      if (comparison === undefined) {
        receipt.rejected.push({ request_id: label.request_id, problem: { type: 'about:blank', title: 'Not Found', status: 404, detail: `There is no comparison ${label.comparison_id}.` } })
        continue
      }
      if (!this.requests.has(label.request_id)) {
        this.requests.set(label.request_id, label)
        this.log.push(label)
        comparison.answer = label.answer
        comparison.answeredAt = new Date().toISOString()
        const experiment = this.experiments.get(comparison.experiment)
        this.broadcast(experiment, 'progress', this.progressOf(experiment))
      }
      receipt.accepted.push(label.request_id)
    }
    return receipt
  }

  /** Store a ranking as labels of its pairs, or withdraw one. */
  ranking(experiment, id, submitted) {
    if (id !== undefined) {
      const comparisons = this.requests.get(id) ?? []
      this.log.push({ withdrawn: id })
      for (const one of comparisons) Object.assign(one, { answer: null, ranking: null })
      this.broadcast(experiment, 'progress', this.progressOf(experiment))
      return { comparisons: comparisons.map((one) => this.lease(one)) }
    }
    const clips = new Map([...experiment.comparisons.values()]
      .flatMap(({ left, right, seeds }) => [[left.hash, [left, seeds[0]]], [right.hash, [right, seeds[1]]]]))
    const labelled = pairwiseAnswers(submitted).flatMap(([one, other, answer]) => {
      const comparison = this.findPair(experiment, one, other)
      if (comparison === undefined && answer === 'cannot_tell') return []
      const found = comparison ?? this.add(experiment, [clips.get(one), clips.get(other)])
      const isSwapped = found.left.hash !== one && answer === 'left'
      return Object.assign(found, {
        answer: isSwapped ? 'right' : answer, answeredAt: new Date().toISOString(), ranking: submitted.request_id,
      })
    })
    this.requests.set(submitted.request_id, labelled)
    this.log.push(submitted)
    this.broadcast(experiment, 'progress', this.progressOf(experiment))
    return { comparison_ids: labelled.map(({ id }) => id), warning: null }
  }

  lease(comparison) {
    const lease = sha(`lease ${comparison.id}`).replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, '$1-$2-$3-$4-$5')
    this.leases.set(lease, comparison.id)
    return { ...comparison, lease, lease_expires_at: new Date(Date.now() + 300_000).toISOString() }
  }

  findPair({ comparisons }, one, other) {
    return [...comparisons.values()].find(({ left, right }) =>
      (left.hash === one && right.hash === other) || (left.hash === other && right.hash === one))
  }

  find(id) {
    for (const { comparisons } of this.experiments.values()) if (comparisons.has(id)) return comparisons.get(id)
    return undefined
  }

  listen(response, experiment) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' })
    response.write(': hello\n\n')
    const listener = { response, experiment }
    this.listeners.add(listener)
    response.on('close', () => this.listeners.delete(listener))
    return true
  }

  broadcast(experiment, event, content) {
    for (const listener of this.listeners) {
      if (listener.experiment === null || listener.experiment === experiment.name) {
        listener.response.write(`event: ${event}\ndata: ${JSON.stringify(content)}\n\n`)
      }
    }
  }

  /** Change the state: {"offline": true}, {"ask": ["calm", 3]}, {"train": "calm"}. */
  command(request, response) {
    const { ask, train, ...control } = request
    Object.assign(this.control, control)
    if (this.control.offline || this.control.signedOut) {
      for (const listener of this.listeners) listener.response.destroy()
    }
    if (ask !== undefined) {
      const experiment = this.experiments.get(ask[0])
      for (let i = 0; i < ask[1]; i++) this.ask(experiment)
      this.broadcast(experiment, 'progress', this.progressOf(experiment))
    }
    if (train !== undefined) this.train(this.experiments.get(train))
    return json(response, { control: this.control, log: this.log })
  }

  train(experiment) {
    experiment.step += 10_000
    const row = rowOf(experiment.rows.length, experiment.step)
    row.step = experiment.step
    experiment.rows.push(row)
    this.broadcast(experiment, 'metrics', row)
    this.broadcast(experiment, 'experiment', this.summaryOf(experiment))
  }
}

/** Return the seeds of two clips that are close to each other in the ranking, each pair once. */
function neighbours(number, numClips) {
  const first = (7 * number) % numClips
  const distance = 1 + 6 * (Math.floor(number / numClips) % 5)
  const second = first + distance < numClips ? first + distance : first - distance
  return number % 2 ? [first, second] : [second, first]
}

/** Clips with a higher seed are better; some answers are wrong. */
const answerOf = ({ id, seeds: [left, right] }) => ((left > right) !== (id % 23 === 0) ? 'left' : 'right')

function effectOf(experiment) {
  const answered = [...experiment.comparisons.values()].filter(({ answer }) => answer !== null).reverse()
  const decided = answered.filter(({ answer }) => answer === 'left' || answer === 'right').slice(0, 25)
  const disagreements = decided.filter(({ id }) => id % 7 === 0)
  const clips = answered.map(({ left }) => left)
  return {
    num_fits: Math.floor(answered.length / 3), num_labels: answered.length, num_compared: decided.length,
    num_agreed: decided.length - disagreements.length, disagreements,
    highest: clips.slice(0, 4), lowest: clips.slice(4, 8),
  }
}

function labelsOf(experiment, url) {
  return [...experiment.comparisons.values()]
    .filter(({ answer }) => answer !== null)
    .sort((one, other) => Date.parse(other.answeredAt) - Date.parse(one.answeredAt))
    .slice(0, Number(url.searchParams.get('limit') ?? 20))
    .map((comparison) => ({
      request_id: `old-${comparison.id}`, comparison, answered_at: comparison.answeredAt, ranking: comparison.ranking ?? null,
    }))
}

function rowOf(i, lastStep) {
  const wave = Math.sin(i * 1.7) * 0.5 + Math.sin(i * 0.6)
  return {
    id: i + 1, step: Math.round((lastStep * (i + 1)) / 120), steps_per_second: 24_000 + 300 * wave,
    true_return: i < 3 ? null : 1900 * (1 - Math.exp(-i / 40)) + 60 * wave,
    predicted_return: i < 6 ? null : 260 * (1 - Math.exp(-i / 30)) - 80 + 14 * wave,
    held_out_accuracy: i % 5 === 0 && i > 4 ? 0.62 + 0.24 * (1 - Math.exp(-i / 30)) + 0.015 * wave : null,
    labels_answered: 40 + 2 * i, labels_asked: 44 + 2 * i, agreement: 0.83, disagreement: 0.21,
    correlation: 0.71, loss: 0.41, held_out_loss: 0.52, fits: Math.ceil(i / 5),
  }
}

const bodyOf = async (request) => {
  let body = ''
  for await (const part of request) body += part
  return body
}

function send(response, status, content, type, headers = {}) {
  response.writeHead(status, { 'content-type': type, ...headers }).end(content)
  return true
}

const json = (response, content) => send(response, 200, JSON.stringify(content), 'application/json')

const problem = (response, status, title, detail) =>
  send(response, status, JSON.stringify({ type: 'about:blank', title, status, detail }), 'application/problem+json')
