"""Packing policies: figures worked out by hand, ties, and the promises that hold whatever the numbers are."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from shoal.base.errors import Malformed
from shoal.base.rng import Rng
from shoal.planning.fragmentation import Shape, fragment_of
from shoal.scheduling.packing.fragmentation import Fragmentation
from shoal.scheduling.packing.mix import Mix, scarcity
from shoal.scheduling.packing.nodes import ArrayFleet, Nodes, TaskShape, after_whole, fitting
from shoal.scheduling.packing.packer import Packer, Scorer
from shoal.scheduling.packing.simple import Anywhere, BestFit, Spread
from shoal.scheduling.packing.table import COLUMNS_CPU, ROWS, Table, TableFile, default_table, read_table, row_label, write_table
from shoal.scheduling.packing.value import Value, usable_by_several

QUARTER = TaskShape(4_000, 0, 1, 250)
WHOLE_ONE = TaskShape(8_000, 0, 1, 1_000)
PAIR = TaskShape(24_000, 0, 2, 1_000)
CPU_ONLY = TaskShape(2_000)
MIX = Mix((CPU_ONLY, QUARTER, WHOLE_ONE, PAIR), (1, 4, 3, 2))


def nodes_of(*rows: tuple[int, tuple[int, ...]], models: tuple[int, ...] = ()) -> Nodes:
    """Nodes of (CPU milli, free thousandths by GPU)."""
    width = max(len(gpus) for _, gpus in rows)
    return Nodes(
        cpu_milli=np.array([cpu for cpu, _ in rows]),
        memory=np.full(len(rows), 1 << 20),
        gpu_milli=np.array([[*gpus, *[0] * (width - len(gpus))] for _, gpus in rows]),
        gpus=np.array([len(gpus) for _, gpus in rows]),
        model=np.array(models or (0,) * len(rows)),
        scarcity=np.zeros(len(rows)),
    )


def random_fleet(rng: Rng, count: int = 30) -> ArrayFleet:
    kinds = ((96_000, 8), (64_000, 2), (32_000, 1), (96_000, 4))
    rows = [rng.choice(kinds) for _ in range(count)]
    made = nodes_of(*((cpu, (1_000,) * gpus) for cpu, gpus in rows), models=tuple(rng.below(3) for _ in rows))
    return ArrayFleet(made._replace(scarcity=np.array([rng.unit() for _ in rows])))


def random_shape(rng: Rng) -> TaskShape:
    cpu, models = 1_000 * rng.below(16), rng.choice((-1, -1, 1, 6))
    kind = rng.below(4)
    if kind == 0:
        return TaskShape(cpu + 500, 64)
    if kind == 1:
        return TaskShape(cpu, 64, 1, 10 * (1 + rng.below(99)), models)
    return TaskShape(cpu, 64, rng.choice((1, 1, 2, 4, 8)), 1_000, models)


def random_mix(rng: Rng) -> Mix:
    return Mix.of(random_shape(rng) for _ in range(40))


def scorers(mix: Mix) -> dict[str, Scorer]:
    return {
        "best-fit": BestFit(),
        "spread": Spread(),
        "fragmentation": Fragmentation(mix),
        "value": Value(default_table(), mix),
        "value where nobody leaves": Value(default_table(), mix, lambda: False),
        "anywhere": Anywhere(),
    }


# --- fragmentation gradient, by hand ------------------------------------------------------------------------------------------
def test_fragment_of_the_worked_node_is_1_08_gpus_and_a_quarter_is_best_on_the_second_gpu() -> None:
    node = nodes_of((20_000, (300, 500, 1_000, 1_000)))
    scorer = Fragmentation(MIX)
    before = scorer.fragments(node.cpu_milli, node.gpu_milli, node.model)
    assert before[0] / 10 == 1_080
    rises = []
    for gpu in range(3):
        left = node.gpu_milli.copy()
        left[0, gpu] -= 250
        rises.append((scorer.fragments(node.cpu_milli - 4_000, left, node.model)[0] - before[0]) / 10)
    assert rises == [-130, -150, 150]
    # 100 x sigmoid(0.13) = 53.2 and 100 x sigmoid(0.15) = 53.7: both 53, so the first GPU has it.
    score, gpu = scorer.score(node, QUARTER)
    assert (score[0], gpu[0]) == (53, 0)


def test_a_change_of_nothing_scores_exactly_50() -> None:
    score, _ = Fragmentation(MIX).score(nodes_of((20_000, (0, 0))), CPU_ONLY)
    assert score[0] == 50


def test_fragments_equal_those_of_shoal_plan() -> None:
    rng = Rng(7)
    mix = Mix.of(shape._replace(models=-1) for shape in random_mix(rng).shapes)
    total = sum(mix.counts)
    planned = tuple(
        Shape(p=count / total, cpu=shape.cpu_milli / 1_000, gpus=shape.gpus, per_gpu=shape.gpu_milli / 1_000)
        for shape, count in zip(mix.shapes, mix.counts, strict=True)
    )
    scorer = Fragmentation(mix)
    for _ in range(50):
        free = tuple(rng.choice((0, 10 * rng.below(100), 1_000)) for _ in range(8))
        node = nodes_of((1_000 * rng.below(97), free))
        got = scorer.fragments(node.cpu_milli, node.gpu_milli, node.model)[0] / total / 1_000
        assert got == pytest.approx(fragment_of(node.cpu_milli[0] / 1_000, tuple(part / 1_000 for part in free), planned))


# --- value, by hand -----------------------------------------------------------------------------------------------------------
def flat_table() -> Table:
    """A piece is worth half of itself, whatever the CPU."""
    parts = [5.0 * row for row in range(100)] + [500.0] * 8
    return Table(np.repeat(np.array(parts)[:, None], len(COLUMNS_CPU), axis=1))


def test_a_node_is_worth_the_sum_of_its_pieces() -> None:
    node = nodes_of((40_000, (1_000, 1_000, 300, 0)))
    assert Value(flat_table(), MIX, lambda: False).values(node.cpu_milli, node.gpu_milli)[0] == 500 + 500 + 150


def test_cpu_is_divided_by_what_is_free_plus_a_floor() -> None:
    cells = np.zeros((ROWS, len(COLUMNS_CPU)))
    cells[1:] = COLUMNS_CPU  # Worth its cores.
    node = nodes_of((15_000, (1_000, 100)))
    values = Value(Table(cells), MIX).values(node.cpu_milli, node.gpu_milli)
    assert values[0] == pytest.approx(15)  # 12 beside the whole one, 3 beside the tenth.
    assert Value(Table(cells), MIX).values(np.array([80_000]), np.array([[1_000, 0]]))[0] == pytest.approx(52)


def test_gain_counts_scarcity_and_is_rounded_to_steps() -> None:
    nodes = nodes_of((40_000, (1_000,)), (40_000, (1_000,)))._replace(scarcity=np.array([0.0, 1.0]))
    score, _ = Value(flat_table(), MIX, lambda: False).score(nodes, TaskShape(0, 0, 1, 1_000))
    # 1,000 - 500 kept out of nothing; then 300 less for a node wanted by all.
    assert score.tolist() == [pytest.approx(500, abs=0.01), pytest.approx(200, abs=0.01)]


def test_default_table_interpolates_between_columns() -> None:
    table = default_table()
    row = np.array([100, 100])
    assert table.worth(row, np.array([14.0, 15.0])).tolist() == pytest.approx([921, 921.5])


# --- scarcity -----------------------------------------------------------------------------------------------------------------
def test_nodes_that_the_picky_need_are_scarce() -> None:
    empty = nodes_of((64_000, (1_000, 1_000)), (64_000, (1_000, 1_000)), models=(0, 1))
    mix = Mix((TaskShape(1_000, 0, 1, 1_000), TaskShape(1_000, 0, 1, 1_000, 1 << 1)), (2, 2))
    # Four GPUs asked of four: both nodes share the first shape (2/4 each), the second alone has the second (2/2).
    assert scarcity(mix, empty).tolist() == [0, 1]


# --- the memory ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(scorers(MIX)))
@pytest.mark.parametrize("seed", range(3))
def test_remembered_scores_equal_fresh_ones(name: str, seed: int) -> None:
    rng = Rng(seed)
    fleet, mix = random_fleet(rng), random_mix(rng)
    packer = Packer(fleet, scorers(mix)[name])
    held: list[tuple[int, TaskShape, tuple[int, ...]]] = []
    shapes = [random_shape(rng) for _ in range(12)]
    for _ in range(120):
        if held and rng.below(3) == 0:
            fleet.give(*held.pop(rng.below(len(held))))
        shape = rng.choice(shapes)
        found = packer.best(shape)
        assert found == Packer(fleet, scorers(mix)[name]).best(shape)
        if found is None:
            assert not fitting(fleet.free, shape).any(), "a task that fits is placed"
        else:
            held.append((found[0], shape, fleet.take(found[0], shape, found[1])))
        assert (fleet.free.gpu_milli >= 0).all()
        assert (fleet.free.cpu_milli >= 0).all()
    for one in held:
        fleet.give(*one)
    assert (fleet.free.gpu_milli == fleet.total.gpu_milli).all()


def test_equal_scores_fall_to_the_first_row() -> None:
    fleet = ArrayFleet(nodes_of(*[(64_000, (1_000, 1_000))] * 4))
    for scorer in scorers(MIX).values():
        assert Packer(fleet, scorer).best(WHOLE_ONE) == (0, -1)


def test_with_a_random_stream_equal_scores_fall_anywhere_and_the_same_again() -> None:
    fleet = ArrayFleet(nodes_of(*[(64_000, (1_000, 1_000))] * 4))
    picks = [[Packer(fleet, Anywhere(), Rng(seed)).best(QUARTER) for seed in range(60)] for _ in range(2)]
    assert picks[0] == picks[1]
    assert set(picks[0]) == {(row, gpu) for row in range(4) for gpu in range(2)}


def test_best_fit_and_spread_go_opposite_ways() -> None:
    fleet = ArrayFleet(nodes_of((64_000, (1_000, 1_000)), (64_000, (1_000, 400)), (64_000, (0, 300))))
    assert Packer(fleet, BestFit()).best(QUARTER) == (2, 1)
    assert Packer(fleet, Spread()).best(QUARTER) == (0, 0)


def test_scores_of_some_rows_are_worked_out_for_these_alone() -> None:
    fleet = ArrayFleet(nodes_of((64_000, (1_000,)), (64_000, (0,)), (8_000, (1_000,))))
    packer = Packer(fleet, BestFit())
    assert packer.scores(WHOLE_ONE, np.array([1, 2])).tolist() == [-np.inf, 100]


def test_whole_gpus_are_the_first_free_ones() -> None:
    assert after_whole(np.array([[300, 1_000, 1_000, 1_000]]), 2).tolist() == [[300, 0, 0, 1_000]]


# --- the file -----------------------------------------------------------------------------------------------------------------
def table_file() -> TableFile:
    cells = default_table().cells
    rows = tuple((row_label(row), tuple(cells[row].tolist())) for row in range(1, ROWS))
    return TableFile(format="shoal-value-table/1", source="a test", columns_cpu=COLUMNS_CPU, rows=rows)


def test_a_table_survives_its_file() -> None:
    text = write_table(table_file())
    table, file = read_table(text)
    assert (table.cells == default_table().cells).all()
    assert write_table(file) == text


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": "other/1"}, "its format is 'other/1'"),
        ({"columns_cpu": (0, 1)}, "its columns_cpu are [0, 1]"),
        ({"rows": ()}, "its rows are not 1 to F8"),
        ({"rows": (("1", (0.0,)), *table_file().rows[1:])}, "row 1 has 1 values, 22 are due"),
        ({"rows": (("1", (2_000.0,) * 22), *table_file().rows[1:])}, "row 1 has a value outside 0..1000"),
    ],
)
def test_a_file_that_is_no_table_says_why(change: dict[str, object], told: str) -> None:
    with pytest.raises(Malformed) as refusal:
        read_table(write_table(msgspec.structs.replace(table_file(), **change)))
    assert told in refusal.value.message


# --- where tasks leave ---------------------------------------------------------------------------------------------------------
def test_what_several_gpus_can_use_counts_by_how_many_gpus_ask_so() -> None:
    mix = Mix.of([TaskShape(0, 0, 1, 1_000)] * 2 + [TaskShape(0, 0, 4, 1_000)] * 2 + [TaskShape(1_000)] * 9)
    assert usable_by_several(mix)[[3, 4, 6]].tolist() == pytest.approx([0, 3_200, 4_800])


def test_once_tasks_leave_a_whole_node_is_not_broken_for_one_gpu() -> None:
    """By the flat table every place is as good; the node of eight would be the first by name."""
    mix = Mix.of([TaskShape(1_000, 0, 1, 1_000), TaskShape(8_000, 0, 8, 1_000)])
    nodes = nodes_of((96_000, (1_000,) * 8), (96_000, (1_000,) * 3 + (0,) * 5))
    one = TaskShape(1_000, 0, 1, 1_000)
    for leaves, want in ((False, 0), (True, 1)):
        score, _ = Value(flat_table(), mix, lambda leaves=leaves: leaves).score(nodes, one)  # type: ignore[misc]
        assert score.argmax() == want


def test_what_is_remembered_is_void_when_the_first_task_leaves() -> None:
    fleet = random_fleet(Rng(1))
    scorer = Value(default_table(), MIX, lambda: fleet.leaves)
    packer, rng = Packer(fleet, scorer), Rng(2)
    held = []
    for at in range(60):
        shape = random_shape(rng)
        found = packer.best(shape)
        if found is not None:
            held.append((found[0], shape, fleet.take(found[0], shape, found[1])))
        if at == 30:
            fleet.give(*held.pop())
        assert packer.best(shape) == Packer(fleet, scorer).best(shape)
