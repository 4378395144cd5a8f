/** Fetches clips and scenes, decodes them, and keeps the ones used last. */

import { getBlob, getBytes, getScene, Refused } from './api'
import { CorruptClip, decodePoses, type Poses } from './poses'
import type { SceneFile } from './scene-file'
import type { Clip, Comparison } from './types'

const KEPT = 60

export interface PosesClip {
  kind: 'poses'
  clip: Clip
  poses: Poses
  scene: SceneFile
}

export interface VideoClip {
  kind: 'video'
  clip: Clip
  /** A local address of the film's bytes. */
  url: string
}

/** A clip that can be shown at once. */
export type LoadedClip = PosesClip | VideoClip

/** A comparison that can be shown at once. */
export interface LoadedComparison {
  comparison: Comparison
  left: LoadedClip
  right: LoadedClip
}

export class ClipLoader {
  #clips = new Map<string, Promise<LoadedClip>>()
  #scenes = new Map<string, Promise<SceneFile>>()

  /** @throws CorruptClip, Refused, ServerAway or SignedOut. */
  async comparison(comparison: Comparison): Promise<LoadedComparison> {
    const [left, right] = await Promise.all([
      this.clip(comparison.left),
      this.clip(comparison.right),
    ])
    return { comparison, left, right }
  }

  clip(clip: Clip): Promise<LoadedClip> {
    const kept = this.#clips.get(clip.url)
    if (kept !== undefined) {
      this.#clips.delete(clip.url)
      this.#clips.set(clip.url, kept)
      return kept
    }
    const loading = this.#load(clip)
    this.#clips.set(clip.url, loading)
    loading.catch(() => this.#clips.delete(clip.url))
    this.#dropOldest()
    return loading
  }

  async #load(clip: Clip): Promise<LoadedClip> {
    if (clip.kind === 'video') {
      return { kind: 'video', clip, url: URL.createObjectURL(await getBlob(clip.url)) }
    }
    if (clip.scene_url === null) throw new CorruptClip('The clip names no scene.')
    const [bytes, scene] = await Promise.all([getBytes(clip.url), this.#scene(clip.scene_url)])
    const poses = decodePoses(bytes)
    if (poses.numBodies !== scene.bodies.length) {
      throw new CorruptClip(
        `The clip moves ${poses.numBodies} bodies; its scene has ${scene.bodies.length}.`,
      )
    }
    return { kind: 'poses', clip, poses, scene }
  }

  #scene(url: string): Promise<SceneFile> {
    let scene = this.#scenes.get(url)
    if (scene === undefined) {
      scene = getScene<SceneFile>(url)
      this.#scenes.set(url, scene)
      scene.catch(() => this.#scenes.delete(url))
    }
    return scene
  }

  #dropOldest(): void {
    for (const [url, loading] of this.#clips) {
      if (this.#clips.size <= KEPT) return
      this.#clips.delete(url)
      void loading.then(release, () => undefined)
    }
  }
}

function release(loaded: LoadedClip): void {
  if (loaded.kind === 'video') URL.revokeObjectURL(loaded.url)
}

/** Whether asking again cannot help: the clip itself is damaged or gone. */
export const isBroken = (error: unknown): boolean =>
  error instanceof CorruptClip || error instanceof Refused
