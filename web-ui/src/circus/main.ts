import { mount } from 'svelte'

import { theme } from '../lib/theme.svelte'
import Circus from './Circus.svelte'

theme.start()
const data = document.getElementById('circus')!.textContent!
mount(Circus, { target: document.getElementById('app')!, props: { circus: JSON.parse(data) } })
