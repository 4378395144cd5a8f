/** Let an element take the focus while its text scrolls, for the arrow keys; not every browser does so itself. */
export function scrollable(element: HTMLElement): () => void {
  const resized = new ResizeObserver(() => {
    if (element.scrollHeight > element.clientHeight) element.tabIndex = 0
    else element.removeAttribute('tabindex')
  })
  resized.observe(element)
  return () => resized.disconnect()
}
