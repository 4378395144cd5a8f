// The mock service's routes for owners, invites and `rl-teacher play`.

import { rank } from './mock-rankings.mjs'

const ANSWERS = ['left', 'right', 'left', 'equal', 'right', 'cannot_tell']
const MANY = 100_000
const chance = (seed) => (((Math.sin(seed * 12.9898) * 43758.5453) % 1) + 1) % 1
const ago = (hours) => new Date(Date.now() - hours * 3_600_000).toISOString()
const share = (value, count) => (count === 0
  ? { share: null, low: null, high: null, count: 0 }
  : { share: value, low: Math.max(0, value - 0.9 / Math.sqrt(count)), high: Math.min(1, value + 0.9 / Math.sqrt(count)), count })

const player = (name, more) => ({
  name, env_id: 'Hopper-v1', agent: 'ppo', step: 640_000, checkpoint: 'latest', is_training: false, notes: [], ...more,
})
const PLAY_SESSION = {
  players: [player('calm', { is_training: true }), player('reference', { step: 3_000_000, notes: ['It learned from the true reward.'] })],
  num_episodes: 5, seed: 0, is_exploring: false,
}

export class OwnerRoutes {
  constructor(mock) {
    this.mock = mock
    this.changed = new Map()
    this.states = new Map()
    this.invites = [
      { id: 1, hint: 'rlt_9fKq', name: null, role: 'labeler', experiment: 'humanoid-walk', created_at: ago(3), expires_at: ago(-165), used_at: null, used_by: null, revoked_at: null, status: 'open', max_uses: 30, num_uses: 12 },
      { id: 2, hint: 'rlt_x2Lm', name: 'Ada', role: 'labeler', experiment: null, created_at: ago(90), expires_at: ago(-2), used_at: ago(80), used_by: 'Ada', revoked_at: null, status: 'used', max_uses: 1, num_uses: 1 },
    ]
    this.labelers = ['owner', 'Ada', 'Ben', 'Cleopatra of Alexandria', '<b>Mallory</b>', 'synthetic:0.05'].map((name, i) => ({
      id: i + 1, name, role: i === 0 ? 'owner' : i === 5 ? 'teacher' : 'labeler', created_at: ago(100 - i),
      excluded_at: i === 4 ? ago(2) : null, num_labels: Math.round(900 / (i + 1)), last_label_at: ago(i),
    }))
    this.events = Array.from({ length: 230 }, (_, i) => ({
      id: 230 - i, created_at: ago(i / 3), kind: ['control', 'gold', 'adjudicate', 'exclude', 'invite', 'instructions', 'study'][i % 7], actor: 'owner',
      experiment: 'humanoid-walk', details: [{ state: 'pause' }, { comparison: 400 - i, answer: 'left' }, { comparison: 380 - i, answer: 'right' }, { labeler: 'Ben' }, { hint: 'rlt_9fKq' }, { instructions: 'Prefer the clip that walks more like a person.' }, { overlap: 0.1, repeats: 0.05 }][i % 7],
    }))
  }

  detailOf({ name, target }) {
    return {
      study: { overlap: 0.1, overlap_labelers: 2, repeats: 0.05, gold: 0, ...this.states.get(name)?.study },
      control: { state: 'run', seconds_between: null, target_labels: target, ...this.states.get(name)?.control },
    }
  }

  /** @returns the answer; null for none to say, undefined where it is none of the owner's. */
  answer(method, path, query, body) {
    const [first, second, third] = path
    const key = `${method} ${path.map((part, i) => (i === 1 && first !== 'leases' ? '*' : part)).join('/')}`
    if (key === 'GET me') return { name: this.mock.control.role === 'owner' ? 'owner' : 'Ada', role: this.mock.control.role, home: 'mock' }
    if (key === 'POST join') return this.join(body)
    if (key === 'POST leases/renew') return this.renew(body.leases)
    if (key === 'POST leases/release') return body.leases.forEach((one) => this.mock.leases.delete(one)), null
    if (this.mock.control.role !== 'owner') return undefined
    if (key === 'GET play') return PLAY_SESSION
    if (first === 'play' && second === 'episodes') return this.playedEpisode(Number(third))
    if (key === 'GET labelers') return { labelers: this.labelers }
    if (first === 'labelers' && method === 'POST') return this.changeLabeler(Number(second), third)
    if (key === 'GET invites') return { invites: this.invites }
    if (key === 'POST invites') return this.invite(body)
    if (key === 'DELETE invites/*') {
      Object.assign(this.invites.find(({ id }) => id === Number(second)), { revoked_at: ago(0), status: 'revoked' })
      return null
    }
    if (key === 'GET audit') return pageOf(this.events, query, 'events')
    if (first === 'comparisons' && third === 'gold') return this.setGold(Number(second), body.answer)
    if (first === 'comparisons' && third === 'adjudicate') return this.adjudicate(Number(second), body.answer)
    if (first === 'environments') return this.clips(second, query)
    const experiment = first === 'experiments' ? this.mock.experiments.get(second) : undefined
    if (experiment === undefined) return undefined
    if (key === 'GET experiments/*/quality') return this.quality()
    if (key === 'GET experiments/*/diagnostics') return this.diagnostics(experiment)
    if (key === 'GET experiments/*/episodes') return this.episodes(experiment)
    if (key === 'GET experiments/*/comparisons') return this.list(experiment, query)
    if (path[2] === 'ranking') return this.ranking(experiment, path[3])
    if (key === 'GET experiments/*/export') return { file: '{"schema_version": 1}\n' }
    if (key === 'POST experiments/*/control') return this.control(experiment, body.state)
    if (key === 'PATCH experiments/*') return this.change(experiment, body)
    return undefined
  }

  join({ invite, name }) {
    const why = { used: 'was used already', expired: 'has expired', revoked: 'was taken back' }[invite]
    if (why) return { problem: 409, title: 'The invite cannot be used', detail: `This invite ${why}.` }
    if (name === 'Ben') return { problem: 409, title: 'The name is taken', detail: 'There is a labeler Ben already. Choose another name.' }
    this.mock.control.role = 'labeler'
    return { name, role: 'labeler', home: 'mock', experiment: 'humanoid-walk' }
  }

  renew(leases) {
    const lost = leases.filter((one) => !this.mock.leases.has(one))
    return { renewed: Object.fromEntries(leases.filter((one) => !lost.includes(one)).map((one) => [one, ago(-0.1)])), lost }
  }

  changeLabeler(id, how) {
    const labeler = this.labelers.find((one) => one.id === id)
    if (how === 'exclude') labeler.excluded_at = ago(0)
    if (how === 'include') labeler.excluded_at = null
    return labeler
  }

  invite({ name, role, experiment, days, max_uses = 1 }) {
    const made = { id: this.invites.length + 1, hint: 'rlt_new1', name, role, experiment, created_at: ago(0), expires_at: ago(-24 * days), used_at: null, used_by: null, revoked_at: null, status: 'open', max_uses, num_uses: 0 }
    this.invites = [made, ...this.invites]
    return { ...made, link: '/join?invite=rlt_new1xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }
  }

  setGold(id, answer) {
    this.changed.set(id, { ...this.changed.get(id), gold: answer })
    return {}
  }

  adjudicate(id, answer) {
    this.changed.set(id, { ...this.changed.get(id), own: answer })
    return {}
  }

  judged(experiment, id) {
    const all = [...experiment.comparisons.values()]
    const { left, right, asked_at_step } = all[id % all.length]
    const isOpen = id % 11 === 0
    const numWanted = id % 10 === 0 ? 3 : 1
    const { own, gold } = this.changed.get(id) ?? {}
    const answers = this.labelers.slice(0, isOpen ? 0 : numWanted === 3 ? 3 : 1).map(({ name }, i) => ({
      labeler: name, is_excluded: false, answer: ANSWERS[(id + (chance(id + i) < 0.25 ? i : 0)) % 6],
    })).filter(({ labeler }) => own === undefined || labeler !== 'owner')
    if (own) answers.push({ labeler: 'owner', answer: own, is_excluded: false })
    return {
      is_disputed: ['left', 'right'].every((side) => answers.some(({ answer }) => answer === side)),
      id, number: id, asked_at_step: asked_at_step + 12 * id, asked_at: ago(id / 500), left, right, answers, num_labels: answers.length, num_wanted: numWanted, is_open: isOpen,
      gold: gold !== undefined ? gold : id % 97 === 0 ? 'left' : null,
    }
  }

  list(experiment, query) {
    const total = experiment.name === 'humanoid-walk' ? MANY : experiment.comparisons.size
    const isOldest = query.get('sort') === 'oldest'
    const limit = Number(query.get('limit') ?? 50)
    const rows = []
    let id = query.has('after') ? Number(query.get('after')) : isOldest ? 0 : total + 1
    while (rows.length < limit && (isOldest ? id < total : id > 1)) {
      id += isOldest ? 1 : -1
      const judged = this.judged(experiment, id)
      if (fits(judged, query)) rows.push(judged)
    }
    return { comparisons: rows, next: (isOldest ? id < total : id > 1) ? String(id) : null }
  }

  /** Rank the clips of an experiment, or return the comparisons of one clip. */
  ranking(experiment, hash) {
    const all = [...experiment.comparisons.values()]
    const ranked = rank(all, (comparison) => this.answersTo(comparison))
    const listed = (one) => ({
      id: one.id, number: one.number, asked_at_step: one.asked_at_step, asked_at: ago(1), left: one.left, right: one.right,
      gold: this.changed.get(one.id)?.gold ?? null, num_wanted: 1, num_labels: this.answersTo(one).length,
      is_open: this.answersTo(one).length === 0, is_disputed: false, answers: ranked.answersTo(one),
    })
    if (hash) return { comparisons: all.filter(({ left, right }) => [left.hash, right.hash].includes(hash)).map(listed) }
    const contradicting = all.map(listed).filter(({ answers }) => answers.some((one) => one.is_contradiction))
    const { clips, num_answers } = ranked
    return { clips, num_answers, num_contradictions: contradicting.length, contradictions: contradicting.slice(0, 50) }
  }

  answersTo({ id, answer }) {
    const { own } = this.changed.get(id) ?? {}
    const given = [['Ada', answer], ['owner', own]].filter(([, one]) => one)
    return given.map(([labeler, one], i) => ({ labeler_id: 2 - i, labeler, answer: one, is_excluded: false }))
  }

  clips(envId, query) {
    const clips = [...this.mock.experiments.values()].filter((one) => one.envId === envId)
      .flatMap(({ comparisons }) => [...comparisons.values()].flatMap(({ left, right }) => [left, right]))
    return pageOf(clips, query, 'clips')
  }

  quality() {
    return {
      alpha: { alpha: 0.71, low: 0.63, high: 0.78 }, agreement: share(0.84, 214), num_shared: 214,
      num_labels: 20_000, is_complete: false,
      labelers: this.labelers.map(({ id, name, num_labels }, i) => ({
        id, name, num_answers: num_labels, median_seconds: i === 5 ? null : 2.4 + i, left_rate: share(i === 4 ? 0.93 : 0.51, num_labels),
        self_consistency: share(0.9 - 0.1 * i, i === 5 ? 0 : 20), gold_accuracy: share(0.95 - 0.12 * i, i > 3 ? 0 : 12),
        agreement: share(0.88 - 0.06 * i, 120), reliability: 0.95 - 0.08 * i,
        periods: Array.from({ length: 14 }, (_, j) => ({ start: ago(14 - j), num_answers: Math.round(20 + 18 * chance(i + j)), agreement: 0.8 })),
      })),
    }
  }

  episodes({ episode, step }) {
    if (!episode) return { episodes: [] }
    const shares = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64]
    return { episodes: shares.map((share) => ({ ...episode, step: Math.round(share * step) })) }
  }

  diagnostics(experiment) {
    if (experiment.rows.length === 0) return { step: null, highest: [], lowest: [], calibration: [] }
    const clips = [...experiment.comparisons.values()].slice(0, 8).map(({ left }) => left)
    const liked = clips.map((clip, i) => ({ clip, predicted_return: 14 - 4.3 * i }))
    return {
      step: experiment.step, highest: liked.slice(0, 4), lowest: liked.slice(4).reverse(),
      calibration: [0.08, 0.22, 0.35, 0.48, 0.61, 0.77, 0.92].map((predicted, i) => ({ predicted, observed: Math.min(1, predicted + 0.06 * Math.sin(3 * i)), count: 12 + 9 * i })),
    }
  }

  playedEpisode(number) {
    return {
      number, seed: number,
      sides: PLAY_SESSION.players.map((_, i) => {
        const numFrames = 120 - 30 * i
        const rewards = Array.from({ length: numFrames }, (_, frame) => Math.sin(frame / 9 + number + i) + 0.4)
        return {
          clip: this.mock.clip('hopper', 500 + 2 * number + i, numFrames), num_steps: 4 * numFrames,
          end: i === 0 ? 'truncated' : 'terminated', predicted_rewards: i === 0 ? rewards : null, true_rewards: rewards,
          predicted_return: i === 0 ? 41.2 + number : null, true_return: 812.4 - 300 * i + 7 * number,
        }
      }),
    }
  }

  control(experiment, state) {
    this.states.set(experiment.name, { ...this.states.get(experiment.name), control: { state } })
    setTimeout(() => {
      experiment.phase = { pause: 'paused', run: 'training', stop: 'stopped' }[state]
      this.mock.broadcast(experiment, 'experiment', this.mock.summaryOf(experiment))
    }, 700)
    return {}
  }

  change(experiment, { instructions, target_labels, seconds_between, study }) {
    if (instructions !== undefined) experiment.instructions = instructions
    if (target_labels !== undefined) experiment.target = target_labels
    const before = this.states.get(experiment.name) ?? {}
    this.states.set(experiment.name, {
      ...before, study: { ...before.study, ...study }, control: { ...before.control, ...(seconds_between !== undefined && { seconds_between }) },
    })
    return this.mock.summaryOf(experiment)
  }
}

function fits(judged, query) {
  const kinds = new Set(judged.answers.map(({ answer }) => answer))
  return (query.get('status') !== 'open' || judged.is_open)
    && (query.get('status') !== 'answered' || judged.num_labels > 0)
    && (!query.has('answer') || kinds.has(query.get('answer')))
    && (!query.has('labeler') || judged.answers.some(({ labeler }) => labeler === query.get('labeler')))
    && (!query.has('disputed') || (kinds.has('left') && kinds.has('right')))
    && (!query.has('gold') || judged.gold !== null)
}

function pageOf(all, query, key) {
  const from = Number(query.get('after') ?? 0)
  const limit = Number(query.get('limit') ?? 50)
  return { [key]: all.slice(from, from + limit), next: from + limit < all.length ? String(from + limit) : null }
}
