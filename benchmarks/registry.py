"""Registry of the benchmarks."""

from types import ModuleType

from benchmarks import (
    agents,
    agents_matrix,
    agents_sac,
    atari_pace,
    backflip,
    core_loop,
    film,
    growth,
    page,
    person,
    pictures,
    ppo_returns,
    study,
    tasks,
    throughput,
    versus_imitation,
    web_load,
    wrappers,
)

BENCHMARKS: dict[str, ModuleType] = {
    "throughput": throughput,
    "versus_imitation": versus_imitation,
    "tasks": tasks,
    "core_loop": core_loop,
    "growth": growth,
    "pictures": pictures,
    "ppo_returns": ppo_returns,
    "agents": agents,
    "agents_matrix": agents_matrix,
    "agents_sac": agents_sac,
    "atari_pace": atari_pace,
    "backflip": backflip,
    "page": page,
    "film": film,
    "person": person,
    "study": study,
    "web_load": web_load,
    "wrappers": wrappers,
}
