"""Batched simulations on MuJoCo Warp, which runs on NVIDIA GPUs.

MuJoCo's batch keeps the state of every simulation, draws initial states, and computes what is
observed of them. Only the steps are taken on the device: the states are copied there, stepped, and
copied back with the derived fields. Saved states have the same form as without Warp. A GPU adds in
no fixed order, so that equal states have steps that differ by rounding.
"""
# MuJoCo's and Warp's compiled modules come without type stubs.
# pyright: reportAttributeAccessIssue=false

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import mujoco
import numpy as np
from jaxtyping import Int

from rl_teacher.common.errors import BadInput, MissingExtra
from rl_teacher.envs.mujoco.physics import Simulations
from rl_teacher.envs.mujoco.task import Physics, Task

INPUTS = ("qpos", "qvel", "act", "qacc_warmstart", "ctrl")
"""Fields that determine a step."""
NUM_CONTACTS, NUM_CONSTRAINTS = 48, 64
"""Room for contacts and constraints of a simulation, which doubles where it does not suffice."""
NOT_COPIED = frozenset(("act", "ncon"))
"""Derived fields of tasks that are part of the state, or read only when an episode starts."""


def import_warp() -> tuple[Any, Any]:
    """Import Warp and MuJoCo Warp, and keep Warp's messages off the terminal.

    Raises:
        MissingExtra: they are not installed.
    """
    try:
        import mujoco_warp  # noqa: PLC0415 - optional, and slow
        import warp  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("--physics warp needs MuJoCo Warp", "gpu", error) from error
    warp.config.log_level = warp.LOG_WARNING
    warp.init()
    return warp, mujoco_warp


def find_gpu() -> str:
    """Return Warp's name of the current GPU.

    Raises:
        BadInput: Warp is not installed, or finds no GPU.
    """
    warp, _ = import_warp()
    if not warp.is_cuda_available():
        raise BadInput(
            "--physics warp was given, and Warp finds no NVIDIA GPU here. Check the driver with "
            "`nvidia-smi`, or leave --physics out: MuJoCo in threads is faster on a CPU."
        )
    return str(warp.get_cuda_device())


class WarpSimulations(Simulations):
    """N simulations that MuJoCo Warp steps."""

    _computes_steps = False

    def __init__(
        self, task: Task, num_envs: int, num_threads: int | None = None, device: str = "cpu"
    ) -> None:
        """Create simulations and load the model on a device.

        Raises:
            BadInput: MuJoCo Warp does not support the model.
        """
        self._warp, self._mjw = import_warp()
        self._device = self._warp.get_device(device)
        super().__init__(task, num_envs, num_threads)
        bound = {name: self._batch.bind(name) for name in INPUTS}
        self._inputs = {name: values for name, values in bound.items() if values.size}
        self._device_model = self._load_model()
        self._allocate(NUM_CONTACTS, NUM_CONSTRAINTS)

    def _live_views(self) -> Physics:
        views = super()._live_views()
        # Those of the batch are read-only; `_allocate` adds those of the device.
        kept = {name: values for name, values in views.derived.items() if name in NOT_COPIED}
        return replace(views, derived=kept)

    def _load_model(self) -> Any:
        model = copy.copy(self.model)
        if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            # Warp has no PGS. Both solve the same convex problem, and Newton's method converges.
            model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
        try:
            with self._warp.ScopedDevice(self._device):
                loaded = self._mjw.put_model(model)
        except (NotImplementedError, ValueError) as error:
            raise BadInput(
                f"MuJoCo Warp does not support the model of {self.task.id}: {error} "
                "Leave --physics out."
            ) from error
        # Overflows are read after each step.
        loaded.opt.warn_overflow = 0
        return loaded

    def _allocate(self, num_contacts: int, num_constraints: int) -> None:
        """Make room for so many contacts (on average) and constraints of a simulation."""
        self._capacity = num_contacts, num_constraints
        self._graph = None
        with self._warp.ScopedDevice(self._device):
            self._data = self._mjw.make_data(
                self.model, self.num_envs, nconmax=num_contacts, njmax=num_constraints
            )
        outputs = self.task.derived - NOT_COPIED
        names = {*self._inputs, *outputs, "overflow"}
        self._fields = {name: getattr(self._data, name) for name in names}
        self._shared = {name: self._share(field) for name, field in self._fields.items()}
        self._host = {name: shared.numpy() for name, shared in self._shared.items()}
        for name in outputs:
            is_unbound = name == "cfrc_ext"
            shape = (-1, self.model.nbody, 6) if is_unbound else self._batch.bind(name).shape
            self.physics.derived[name] = self._host[name].reshape(shape, copy=False)

    def _share(self, field: Any) -> Any:
        """Return an array in the host's memory that a field is copied to and from."""
        # Pinned memory is copied without waiting for it.
        return self._warp.zeros_like(field, device="cpu", pinned=self._device.is_cuda)

    def _step(self) -> None:
        self._step_device()
        while self._has_overflowed():
            # The states have not been copied to the batch, so the step is repeated.
            self._allocate(*(2 * each for each in self._capacity))
            self._step_device()
        for name in self._inputs.keys() - {"ctrl"}:
            self._inputs[name][:] = self._host[name]
        self._time += self._step_seconds
        self._reset_diverged()

    def _step_device(self) -> None:
        """Copy the states to the device, step them there, and copy the results back."""
        warp = self._warp
        for name, values in self._inputs.items():
            np.copyto(self._host[name], values, casting="same_kind")
        # On a GPU, everything is queued on one stream, and awaited once.
        with warp.ScopedDevice(self._device):
            for name in self._inputs:
                warp.copy(self._fields[name], self._shared[name])
            if self._device.is_cuda:
                self._launch_graph()
            else:
                self._launch()
            for name in self._fields.keys() - {"ctrl"}:
                warp.copy(self._shared[name], self._fields[name])
            warp.synchronize_device()

    def _launch_graph(self) -> None:
        """Launch all kernels at once, which takes much less time."""
        if self._graph is None:
            with self._warp.ScopedCapture() as capture:
                self._launch()
            self._graph = capture.graph
        self._warp.capture_launch(self._graph)

    def _launch(self) -> None:
        mjw, model, data = self._mjw, self._device_model, self._data
        data.overflow.zero_()
        for _ in range(self.task.body.frame_skip):
            mjw.step(model, data)
        if "cfrc_ext" in self.task.derived:
            mjw.rne_postconstraint(model, data)
        if self.task.body.is_current:
            mjw.fwd_position(model, data)
            mjw.sensor_pos(model, data)
            mjw.fwd_velocity(model, data)
            mjw.sensor_vel(model, data)

    def _has_overflowed(self) -> bool:
        kinds = self._mjw.OverflowType
        lost = kinds.NEFC | kinds.NJMAX_NNZ | kinds.BROADPHASE | kinds.NARROWPHASE | kinds.CCD
        return bool((self._host["overflow"] & int(lost)).any())

    def _reset_diverged(self) -> None:
        """Reset diverged simulations to the model's pose and to time 0, as MuJoCo does."""
        # Also true for NaN.
        is_beyond = ~(np.abs(self.physics.state) <= mujoco.mjMAXVAL)
        ids = np.flatnonzero(is_beyond.any(axis=1)).astype(np.int32)
        if len(ids):
            self._batch.state[ids] = self._blank_row
            self._refresh_derived(ids)

    def _refresh_derived(self, ids: Int[np.ndarray, " some"]) -> None:
        super()._refresh_derived(ids)
        for name in self.task.derived - NOT_COPIED:
            values = 0.0 if name == "cfrc_ext" else self._batch.bind(name)[ids]
            self.physics.derived[name][ids] = values

    def get_state(self) -> dict[str, np.ndarray]:
        """Return MuJoCo's integration state, the tracked x, and the capacity of the device."""
        # Sums are rounded according to the capacity.
        capacity = np.tile(self._capacity, (self.num_envs, 1))
        return {**super().get_state(), "capacity": capacity}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Restore a state from `get_state`, bit for bit."""
        super().set_state(state)
        capacity = tuple(state["capacity"][0].tolist())
        if capacity != self._capacity:
            self._allocate(*capacity)
