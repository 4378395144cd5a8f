/** Copy a text to the clipboard. */
export async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    // The clipboard API exists on secure origins only.
    const field = document.createElement('textarea')
    field.value = text
    // Within an open dialog, elements outside it cannot be selected.
    ;(document.querySelector('dialog[open]') ?? document.body).append(field)
    field.select()
    document.execCommand('copy')
    field.remove()
  }
}
