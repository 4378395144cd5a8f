"""Registry of the benchmarks."""

from types import ModuleType

from benchmarks import (
    ablate,
    agents,
    agents_matrix,
    agents_sac,
    alarms,
    atari_pace,
    cluster,
    core_loop,
    gpu,
    growth,
    image_returns,
    offline_fits,
    ppo_returns,
    sorting,
    tasks,
    throughput,
    time_to_return,
    tricks,
    versus_imitation,
    web_load,
    wrappers,
)
from benchmarks.records import Records

BENCHMARKS: dict[str, ModuleType] = {
    "throughput": throughput,
    "versus_imitation": versus_imitation,
    "tasks": tasks,
    "ablate": ablate,
    "time_to_return": time_to_return,
    "core_loop": core_loop,
    "growth": growth,
    "offline_fits": offline_fits,
    "image_returns": image_returns,
    "ppo_returns": ppo_returns,
    "agents": agents,
    "agents_matrix": agents_matrix,
    "agents_sac": agents_sac,
    "alarms": alarms,
    "atari_pace": atari_pace,
    "tricks": tricks,
    "cluster": cluster,
    "gpu": gpu,
    "sorting": sorting,
    "web_load": web_load,
    "wrappers": wrappers,
}


def records_of(name: str, is_quick: bool = False) -> Records:
    """Return the records of a benchmark, which may be those of another one."""
    return Records(getattr(BENCHMARKS[name], "RECORDS", name), is_quick)
