"""Unit traps: what is easily mistaken is refused, or converted with a note that a reader sees."""

from __future__ import annotations

import pytest

from shoal.planning.quantity import BadQuantity, convert, figure, in_words, parse_amount, unit_of

CONVERTED = [
    # GB and GiB: 7.4 % apart
    ("15 GiB", "GB", 15 * 2**30, "15 GiB = 16.106 GB"),
    ("80 GB", "GiB", 80e9, "80 GB = 74.506 GiB"),
    ("512MiB", "GB", 512 * 2**20, "512 MiB = 0.5369 GB"),
    ("1 TiB", "TB", 2.0**40, "1 TiB = 1.0995 TB"),
    # bits and bytes: 8 times
    ("25 Gbit/s", "GB/s", 3.125e9, "25 Gbit/s = 3.125 GB/s"),
    ("400Gbps", "GB/s", 50e9, "400 Gbps = 50 GB/s"),
    ("500 Mbit/s", "MB/s", 62.5e6, "500 Mbit/s = 62.5 MB/s"),
    ("62.5 MB/s", "Gbit/s", 62.5e6, "62.5 MB/s = 0.5 Gbit/s"),
    # per month, per year, per hour: 730 and 8,760 times
    ("1825 USD/GPU/month", "USD/GPU/h", 2.5 / 3600, "1,825 USD/GPU/month = 2.5 USD/GPU/h, a month counted as 730 h"),
    ("21900 USD/GPU/yr", "USD/GPU/h", 2.5 / 3600, "21,900 USD/GPU/yr = 2.5 USD/GPU/h, a year counted as 8,760 h"),
    ("60 USD/GPU/day", "USD/GPU/h", 2.5 / 3600, "60 USD/GPU/day = 2.5 USD/GPU/h"),
    ("5%/month", "1/h", 0.05 / (730 * 3600), "5%/month = 6.849e-05 1/h, a month counted as 730 h"),
    # thousandths
    ("250 mGPU", "GPU", 0.25, "250 mGPU = 0.25 GPU"),
    ("500mCPU", "vCPU", 0.5, "500 mCPU = 0.5 vCPU"),
    # minutes, seconds, hours
    ("10 min", "s", 600, "10 min = 600 s"),
    ("5m", "s", 300, "5 m = 300 s"),
    ("1h30m", "min", 5_400, "1h30m = 90 min"),
    ("0.02/min", "1/h", 0.02 / 60, "0.02 /min = 1.2 1/h"),
    # percent and fractions
    ("60%", "1", 0.6, "60% = 0.6"),
    ("0.5 percent", "1", 0.005, "0.5 percent = 0.005"),
    # thousands and billions
    ("70 billion", "1", 70e9, "70 billion = 70,000,000,000"),
]
SILENT = [
    ("0.6", "1", 0.6),
    ("8", "GPU", 8),
    ("8 GPUs", "GPU", 8),
    ("20 1/min", "jobs/min", 20 / 60),
    ("2.5 USD/GPU-h", "USD/GPU/h", 2.5 / 3600),
    ("70e9", "1e9", 70e9),
    ("1_000", "nodes", 1_000),
]
REFUSED = [
    # no unit where it decides
    ("60", "s", "unit_needed"),
    ("15", "GB", "unit_needed"),
    ("2.5", "USD/GPU/h", "unit_needed"),
    ("0.02", "1/h", "unit_needed"),
    ("62.5", "MB/s", "unit_needed"),
    # two readings
    ("25 Gb/s", "GB/s", "ambiguous_unit"),
    ("100 Mb", "MB", "ambiguous_unit"),
    ("15 gb", "GB", "ambiguous_unit"),
    ("15G", "GB", "ambiguous_unit"),
    ("15Gi", "GB", "ambiguous_unit"),
    ("70 M", "1", "ambiguous_unit"),
    ("1800 USD/mo", "USD/h", "ambiguous_unit"),
    ("5 USD/m", "USD/h", "ambiguous_unit"),
    ("2 EUR/h", "USD/h", "ambiguous_unit"),
    # another dimension
    ("15 GB", "MB/s", "wrong_dimension"),
    ("62.5 MB/s", "GB", "wrong_dimension"),
    ("250m", "GPU", "wrong_dimension"),
    ("10 s", "GB", "wrong_dimension"),
    ("1.5 USD/h", "USD/GPU/h", "wrong_dimension"),
    ("1.5 USD/GPU", "USD/GPU/h", "wrong_dimension"),
    ("5 h", "GPU*h", "wrong_dimension"),
    ("5 GPU*h", "GPU", "wrong_dimension"),
    ("64 nodes", "GPU", "wrong_dimension"),
    ("989 TFLOP", "TFLOP/s", "wrong_dimension"),
    ("50%", "s", "wrong_dimension"),
    # no quantity at all
    ("many", "1", "not_a_number"),
    ("", "s", "not_a_number"),
    ("1,000", "1", "not_a_number"),
    ("nan", "1", "not_a_number"),
    ("1e999", "1", "not_a_number"),
    ("5 parsecs", "s", "unknown_unit"),
    ("9" * 100, "1", "not_a_number"),
    ("1 " + "h*" * 60 + "h", "s", "unknown_unit"),
]


@pytest.mark.parametrize(("text", "wanted", "value", "note"), CONVERTED)
def test_converted_with_a_note(text: str, wanted: str, value: float, note: str) -> None:
    got, said = parse_amount(text, wanted)
    assert got == pytest.approx(value, rel=1e-12)
    assert said == note


@pytest.mark.parametrize(("text", "wanted", "value"), SILENT)
def test_taken_as_written(text: str, wanted: str, value: float) -> None:
    assert parse_amount(text, wanted) == (pytest.approx(value, rel=1e-12), "")


@pytest.mark.parametrize(("text", "wanted", "code"), REFUSED)
def test_refused(text: str, wanted: str, code: str) -> None:
    with pytest.raises(BadQuantity) as caught:
        parse_amount(text, wanted)
    assert caught.value.code == code


def test_a_refusal_says_what_to_write() -> None:
    with pytest.raises(BadQuantity, match="'Gb' is not clear here; write Gbit or GB"):
        parse_amount("25 Gb/s", "GB/s")
    with pytest.raises(BadQuantity, match="60 without a unit; for example 60 s"):
        parse_amount("60", "s")
    with pytest.raises(BadQuantity, match="say per what"):
        parse_amount("1.5 USD/h", "USD/GPU/h")
    with pytest.raises(BadQuantity, match="'m' is minutes here, thousandths are mGPU"):
        parse_amount("250m", "GPU")


def test_units_multiply_and_divide() -> None:
    assert unit_of("GPU-h").dims == unit_of("GPU*h").dims
    assert unit_of("USD/GPU/h").dims == (("GPU", -1), ("money", 1), ("time", -1))
    assert unit_of("requests/s/s").dims == (("request", 1), ("time", -2))
    assert convert(2, "GPU*h", "GPU*min") == pytest.approx(120)
    assert convert(1, "GB/s", "MB/s") == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (240.0, "s", "240 s"),
        (0.6529546, "1", "0.653"),
        (4.6629e-6, "1", "4.663e-06"),
        (1234.56, "GPU", "1,234.6 GPU"),
        (70.0, "1e9", "70e9"),
        (60.0, "%", "60%"),
        (float("inf"), "s", "never s"),
        (0.0, "GPU", "0 GPU"),
    ],
)
def test_numbers_in_words(value: float, unit: str, words: str) -> None:
    assert in_words(value, unit) == words


def test_figures_of_booleans() -> None:
    assert (figure(True), figure(False)) == ("yes", "no")
