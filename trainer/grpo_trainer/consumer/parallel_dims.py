"""How training processes divide the work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParallelDims:
    """Ranks count through tensor, then pipeline, then data-parallel groups.

    Every backend follows this order: the driver assigns shards and collects results by it.
    """

    world: int
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    zero_stage: int = 0
    """ColossalAI's: 0 off, 1 shards the optimizer's state, 2 its gradients too."""
    sharded_parameters: bool = False
    """Whether each data-parallel rank holds a shard of every parameter (FSDP): then all of them
    take part when a whole one is gathered."""

    @property
    def data_parallel(self) -> int:
        return self.world // (self.tensor_parallel * self.pipeline_parallel)

    def data_index(self, rank: int) -> int:
        """Which data-parallel shard a rank trains on."""
        return rank // (self.tensor_parallel * self.pipeline_parallel)

    def stage(self, rank: int) -> int:
        """Which pipeline stage a rank holds."""
        return rank // self.tensor_parallel % self.pipeline_parallel

    def tensor_index(self, rank: int) -> int:
        return rank % self.tensor_parallel

    def exports(self, rank: int) -> bool:
        """Whether a rank hands out the weights of its stage."""
        return self.data_index(rank) == 0 and self.tensor_index(rank) == 0

    def joins_export(self, rank: int) -> bool:
        """Whether a rank takes part in gathering whole weights, to export them or not."""
        return self.sharded_parameters or self.data_index(rank) == 0

    def reports(self, rank: int) -> bool:
        """Whether a rank has loss sums: one of the last stage in each data-parallel group."""
        return self.tensor_index(rank) == 0 and self.stage(rank) == self.pipeline_parallel - 1
