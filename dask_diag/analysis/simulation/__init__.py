"""One simulator: what a recorded program would take if something were different."""

from __future__ import annotations

from dask_diag.analysis.simulation.result import Simulation
from dask_diag.analysis.simulation.simulator import Simulator, simulate

__all__ = ["Simulation", "Simulator", "simulate"]
