/** Loading of clips and scenes, with a cache of the most recently used ones. */

import { getBlob, getBytes, getJson, RequestRejected } from './api'
import { CorruptClip, decodePoses, type Poses } from './poses'
import type { Clip, Comparison, Scene } from './api-types'

const CACHE_SIZE = 60

export interface PosesClip {
  kind: 'poses'
  clip: Clip
  poses: Poses
  scene: Scene
}

export interface VideoClip {
  kind: 'video'
  clip: Clip
  /** Object URL of the video's bytes. */
  url: string
}

/** A clip whose data is in memory. */
export type LoadedClip = PosesClip | VideoClip

/** Clips that are shown together. */
export interface ClipGroup {
  key: string
  sides: readonly LoadedClip[]
}

/** A comparison whose clips are in memory. */
export interface LoadedComparison {
  comparison: Comparison
  left: LoadedClip
  right: LoadedClip
}

/** Frees the bytes of videos that nothing can show any more: a page may show one that the cache has dropped. */
const revoked = new FinalizationRegistry<string>((url) => URL.revokeObjectURL(url))

export class ClipLoader {
  #clips = new Map<string, Promise<LoadedClip>>()
  #scenes = new Map<string, Promise<Scene>>()

  /** @throws CorruptClip, RequestRejected, ServerUnreachable or SignedOut. */
  async comparison(comparison: Comparison): Promise<LoadedComparison> {
    const [left, right] = await Promise.all([
      this.clip(comparison.left),
      this.clip(comparison.right),
    ])
    return { comparison, left, right }
  }

  clip(clip: Clip): Promise<LoadedClip> {
    const cached = this.#clips.get(clip.url)
    if (cached !== undefined) {
      // A Map keeps insertion order: reinserting makes the clip the most recently used.
      this.#clips.delete(clip.url)
      this.#clips.set(clip.url, cached)
      return cached
    }
    const loading = this.#load(clip)
    this.#clips.set(clip.url, loading)
    loading.catch(() => this.#clips.delete(clip.url))
    this.#dropOldest()
    return loading
  }

  async #load(clip: Clip): Promise<LoadedClip> {
    if (clip.kind === 'video') {
      const video: VideoClip = { kind: 'video', clip, url: URL.createObjectURL(await getBlob(clip.url)) }
      revoked.register(video, video.url)
      return video
    }
    if (clip.scene_url === null) throw new CorruptClip('The clip has no scene.')
    const [bytes, scene] = await Promise.all([getBytes(clip.url), this.#scene(clip.scene_url)])
    const poses = decodePoses(bytes)
    if (poses.numBodies !== scene.bodies.length) {
      throw new CorruptClip(
        `The clip has poses of ${poses.numBodies} bodies, but its scene has ${scene.bodies.length}.`,
      )
    }
    return { kind: 'poses', clip, poses, scene }
  }

  #scene(url: string): Promise<Scene> {
    let scene = this.#scenes.get(url)
    if (scene === undefined) {
      scene = getJson<Scene>(url)
      this.#scenes.set(url, scene)
      scene.catch(() => this.#scenes.delete(url))
    }
    return scene
  }

  #dropOldest(): void {
    for (const url of this.#clips.keys()) {
      if (this.#clips.size <= CACHE_SIZE) return
      this.#clips.delete(url)
    }
  }
}

/** The loader of all pages: what one of them leaves in memory is reused or replaced by the next. */
export const clipLoader = new ClipLoader()

/** Return whether the clip itself is damaged or missing, so that a retry cannot help. */
export const isBroken = (error: unknown): boolean =>
  error instanceof CorruptClip || error instanceof RequestRejected
