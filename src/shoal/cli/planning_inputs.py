"""What a user gives to `shoal plan`, as inputs by name: flags, `--set`, files of inputs, tables as CSV. Reading units is planning's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.base.errors import Invalid
from shoal.formats import yaml
from shoal.planning.inputs import Field, fields_of
from shoal.planning.plan import SWEEP_POINTS_MAX
from shoal.planning.quantity import AMOUNT, BadQuantity, parse_amount, unit_of
from shoal.planning.topic import Topic

if TYPE_CHECKING:
    from shoal.planning.market import Life, Prices
    from shoal.planning.usage import Usage

SWEEP_POINTS = 11
GEOMETRIC_FROM = 20.0
"""A range over so many times its low end is walked by factors, so that its low end is seen too."""


PRICES_DAYS_MAX = 90
"""Older prices decide nothing any more: lists were cut by 44 % within a month."""
_DATED_S = 10 * 365 * 86_400.0
"""Times beyond this are dates; those of a record that counts from zero have no age."""
LAYERS_INPUT = "layers_compressed"
"""The input whose file is an image: a manifest, or the folder of an OCI layout."""
PLATFORM = "linux/amd64"
INDEX_DEPTH_MAX = 3
"""A layout's index names an index of platforms, which names manifests; nothing is nested deeper."""


class Sweep(NamedTuple):
    """An input and its values, in its own unit."""

    field: Field
    values: tuple[float, ...]


def gather(topic: Topic, flags: Mapping[str, str | None], file: Path | None, settings: tuple[str, ...]) -> dict[str, Any]:
    """Inputs by name: a file's, over them `--set`, over them flags."""
    given: dict[str, Any] = dict(_of_file(file)) if file is not None else {}
    given |= dict(setting(text, "--set") for text in settings)
    given |= {name: text for name, text in flags.items() if text is not None}
    fields = {field.name: field for field in fields_of(topic.inputs)}
    return {name: _value(fields.get(name), value, file) for name, value in given.items()}


def setting(text: str, flag: str) -> tuple[str, str]:
    """(input, text) of `name=value`. Raises Invalid."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise Invalid(f"{flag}: {text!r} is no name=value, for example {flag} nodes=64")
    return name.strip().replace("-", "_"), value.strip()


def _of_file(file: Path) -> Mapping[str, Any]:
    documents = yaml.parse(_bytes(file), str(file))
    value = documents[0].value if documents else {}
    if not isinstance(value, dict):
        raise Invalid(f"{file}: a mapping of inputs is due, for example `nodes: 64`")
    return value


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise Invalid(f"{file} cannot be read: {error.strerror}") from error


def _value(field: Field | None, value: Any, file: Path | None) -> Any:
    """Text of lists and tables as lists; `@table.csv` as its rows, beside the file that names it or here."""
    if field is None or not isinstance(value, str):
        return value
    if value.startswith("@"):
        there = (file.parent if file is not None else Path()) / value[1:]
        return _image_layers(there) if field.name == LAYERS_INPUT and there.suffix != ".csv" else _table_of(there, field)
    table = field.many and field.kind not in (float, int, str)
    if table or (field.many and field.kind is str and value.startswith("[")):
        return yaml.parse_value(value)
    return value


def _table_of(file: Path, field: Field) -> Any:
    """Rows of a CSV file, whose header has column names with units in brackets; or what a YAML or JSON file holds."""
    import csv

    text = yaml.decode_text(_bytes(file), str(file))
    if file.suffix.lower() != ".csv":
        documents = yaml.parse(text, str(file))
        value = documents[0].value if documents else []
        # Spot traces are published as {metadata, data: [0, 1, ...]}.
        return value["data"] if isinstance(value, dict) and "data" in value else value
    rows = list(csv.DictReader(text.splitlines()))
    if any(None in row or None in row.values() for row in rows):
        raise Invalid(f"{file}: a row has more or fewer columns than the header")
    if field.kind in (float, int, str):
        return [next(iter(row.values())) for row in rows]
    return rows


def _image_layers(path: Path) -> dict[str, Any]:
    """Compressed sizes of an image's layers, in order, from its manifest or from an OCI layout."""
    from shoal.formats.oci import choose, parse_manifest

    file = path / "index.json" if path.is_dir() else path
    for _ in range(INDEX_DEPTH_MAX):
        manifest = parse_manifest(_bytes(file), str(file))
        if manifest.layers or not manifest.manifests:
            return {"value": [layer.size_bytes for layer in manifest.layers], "unit": "B"}
        if not path.is_dir():
            raise Invalid(f"{file}: an index of several images; give one image's manifest, or the folder of an OCI layout")
        algorithm, _, digest = choose(manifest, PLATFORM, str(file)).digest.partition(":")
        file = path / "blobs" / algorithm / digest
    raise Invalid(f"{path}: indexes nested more than {INDEX_DEPTH_MAX} deep")


def usage_from(file: Path) -> Usage:
    """
    A record of use from CSV: `time [UNIT]` first (a number with a unit in brackets, or ISO 8601), then a column of GPUs per team or kind.
    """
    import csv

    from shoal.planning.usage import usage_of

    rows = list(csv.reader(yaml.decode_text(_bytes(file), str(file)).splitlines()))
    if len(rows) < 2 or any(len(row) != len(rows[0]) for row in rows):
        raise Invalid(f"{file}: a header and rows of as many columns are due, time first")
    unit = rows[0][0].partition("[")[2].rstrip("] ")
    times = [_time(row[0], unit, f"{file}: row {at}") for at, row in enumerate(rows[1:], 2)]
    series = [tuple(_gpus(row[at], f"{file}: column {name}") for row in rows[1:]) for at, name in enumerate(rows[0]) if at]
    return usage_of(times, tuple(rows[0][1:]), tuple(series), str(file))


def arrivals_from(file: Path) -> list[float]:
    """Arrival times in seconds, from the first column of a CSV: `time [UNIT]`, or ISO 8601."""
    import csv

    rows = [row for row in csv.reader(yaml.decode_text(_bytes(file), str(file)).splitlines()) if row]
    if not rows:
        raise Invalid(f"{file}: a header and a row per arrival are due, time first")
    unit = rows[0][0].partition("[")[2].rstrip("] ")
    return [_time(row[0], unit, f"{file}: row {at}") for at, row in enumerate(rows[1:], 2)]


def prices_from(file: Path, now_s: float, *, old_too: bool) -> Prices:
    """
    Spot prices from CSV: `time [UNIT]` or ISO 8601, `spot [USD/GPU/h]`, and, where it is known, `on_demand` in the same unit.

    Raises Invalid for prices that ended more than PRICES_DAYS_MAX ago, unless `old_too`.
    """
    from shoal.planning.market import prices_of

    rows = _columns(file, ("time", "spot"), ("on_demand",))
    prices = prices_of(rows["time"], rows["spot"], rows.get("on_demand", []), str(file))
    age_days = (now_s - prices.times_s[-1]) / 86_400
    dated = prices.times_s[-1] > _DATED_S
    if dated and age_days > PRICES_DAYS_MAX and not old_too:
        raise Invalid(
            f"{file}: the last price is {age_days:.0f} days old, at most {PRICES_DAYS_MAX} are taken; --old-prices takes them anyway"
        )
    return prices


def lives_from(file: Path) -> tuple[Life, ...]:
    """Lives of spot nodes from CSV: `start` and `end` (ISO 8601, or numbers under `start [h]`), and `lost`, yes where the cloud took it."""
    from shoal.planning.market import Life, lives_of

    rows = _columns(file, ("start", "end", "lost"), ())
    return lives_of([Life(*life) for life in zip(rows["start"], rows["end"], map(bool, rows["lost"]), strict=True)], str(file))


def _columns(file: Path, needed: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, list[float]]:
    """Columns of a CSV by name, read in the units of their headers; others are left alone. Raises Invalid, with the place."""
    import csv

    table = list(csv.reader(yaml.decode_text(_bytes(file), str(file)).splitlines()))
    header = [cell.partition("[")[0].strip() for cell in table[0]] if table else []
    missing = [name for name in needed if name not in header]
    if missing or any(len(row) != len(header) for row in table):
        raise Invalid(
            f"{file}: a header with the columns {', '.join(needed)} and rows of as many values are due; missing: {missing or 'values'}"
        )
    found: dict[str, list[float]] = {}
    for name in (*needed, *(name for name in optional if name in header)):
        at = header.index(name)
        unit = table[0][at].partition("[")[2].rstrip("] ")
        found[name] = [_cell(name, row[at].strip(), unit, f"{file}: row {line}: {name}") for line, row in enumerate(table[1:], 2)]
    return found


def _cell(name: str, text: str, unit: str, place: str) -> float:
    """One value: a time, a price in USD per GPU and second, or yes and no as 1 and 0."""
    if name in ("time", "start", "end"):
        return _time(text, unit, place)
    if name == "lost":
        if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
            raise Invalid(f"{place}: {text!r}; write yes or no")
        return float(text.lower() in ("yes", "true", "1"))
    try:
        return parse_amount(f"{text} {unit}" if unit else text, "USD/GPU/h")[0]
    except BadQuantity as error:
        raise Invalid(f"{place}: {error}") from error


def _time(text: str, unit: str, place: str) -> float:
    """Seconds, from any start."""
    from datetime import datetime

    try:
        return parse_amount(f"{text} {unit}", "s")[0] if unit else datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise Invalid(f"{place}: {text!r} is no time; write ISO 8601, or a number under a header such as `time [h]`") from error


def _gpus(text: str, place: str) -> float:
    try:
        return parse_amount(text, "GPU")[0]
    except BadQuantity as error:
        raise Invalid(f"{place}: {error}") from error


def sweep_of(topic: Topic, text: str) -> Sweep:
    """
    The values of `interval=10..240 min` or `nodes=1..128:8` (so many points). Raises Invalid.

    Steps are even, or factors where the range is wide; whole numbers where the input counts.
    """
    name, span = setting(text, "--sweep")
    fields = {field.name: field for field in fields_of(topic.inputs)}
    field = fields.get(name)
    if field is None or field.many or field.kind not in (float, int):
        numeric = [field.name for field in fields.values() if not field.many and field.kind in (float, int)]
        raise Invalid(f"--sweep: {name!r} is no number here; there are {', '.join(numeric)}")
    span, _, points = span.partition(":")
    low_text, dots, high_text = span.partition("..")
    count = int(points) if points.isdecimal() else SWEEP_POINTS
    if not dots or not 2 <= count <= SWEEP_POINTS_MAX:
        raise Invalid(f"--sweep: {text!r} is no range; for example {name}=1..10 or {name}=1..10:20 (2 to {SWEEP_POINTS_MAX} points)")
    try:
        high, low = parse_amount(high_text, field.ask.unit)[0], parse_amount(_with_unit(low_text, high_text), field.ask.unit)[0]
    except BadQuantity as error:
        raise Invalid(f"--sweep {name}: {error}") from error
    scale = unit_of(field.ask.unit).scale
    return Sweep(field, _steps(low / scale, high / scale, count, whole=field.kind is int))


def _with_unit(low: str, high: str) -> str:
    """The low end with the high end's unit, where it has none of its own."""
    match, other = AMOUNT.fullmatch(low.strip()), AMOUNT.fullmatch(high.strip())
    return f"{low} {other[2]}" if match and other and not match[2] and other[2] else low


def _steps(low: float, high: float, count: int, *, whole: bool) -> tuple[float, ...]:
    if low > 0 and high / low >= GEOMETRIC_FROM:
        values = [low * (high / low) ** (at / (count - 1)) for at in range(count)]
    else:
        values = [low + (high - low) * at / (count - 1) for at in range(count)]
    return tuple(dict.fromkeys(float(round(value)) if whole else value for value in values))


def variant(text: str) -> tuple[str, dict[str, str]]:
    """(name, inputs that differ) of `large: nodes=64; interval=10 min`. Raises Invalid."""
    name, colon, body = text.partition(":")
    if not colon or not name.strip():
        raise Invalid(f"--compare: {text!r} is no variant, for example --compare 'large: nodes=64; interval=10 min'")
    return name.strip(), dict(setting(part, "--compare") for part in body.split(";") if part.strip())
