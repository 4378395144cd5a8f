/** The width class of the window, for layouts that CSS alone cannot express. */

const query = matchMedia('(max-width: 640px)')

class Viewport {
  isNarrow = $state(query.matches)

  constructor() {
    query.addEventListener('change', () => (this.isNarrow = query.matches))
  }
}

export const viewport = new Viewport()
