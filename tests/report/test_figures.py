import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from stemmatics.core.content import Chart
from stemmatics.report.figures import write_figures
from stemmatics.report.theme import PALETTE, PALETTE_DARK, config, for_drawing


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_each_chart_is_written_three_times(content, tmp_path):
    paths = write_figures(content, tmp_path / "figures")
    assert [path.name for path in paths] == [f"loss-differences.{suffix}" for suffix in ("svg", "png", "pdf")]
    svg, png, pdf = (path.read_bytes() for path in paths)
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "smollm2-135m-instruct" in "".join(root.itertext())
    assert PALETTE[0].lower() in svg.decode().lower()
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")


def test_a_chart_may_not_load_data(content, tmp_path):
    spec = {"data": {"url": "https://example.org/a.csv"}, "mark": "bar", "encoding": {"x": {"field": "a"}}}
    section = replace(content.sections[0], charts=[Chart("c", "c", "c", spec)])
    with pytest.raises(ValueError, match="example\\.org"):
        write_figures(replace(content, sections=[section]), tmp_path)


def test_width_is_given_to_single_views_only():
    single = {"mark": "bar", "encoding": {}}
    assert for_drawing(single, 500)["width"] == 500
    assert for_drawing({**single, "width": 90}, 500)["width"] == 90
    assert "width" not in for_drawing({"hconcat": [single]}, 500)
    assert "width" not in for_drawing({"mark": "bar", "encoding": {"column": {"field": "a"}}}, 500)
    assert "width" not in single


def test_a_wish_of_the_chart_beats_the_theme(content, tmp_path):
    chart = content.sections[0].charts[0]
    own = {**chart.spec, "config": {"range": {"category": ["#123456", "#654321"]}}}
    section = replace(content.sections[0], charts=[replace(chart, spec=own)])
    svg = write_figures(replace(content, sections=[section]), tmp_path)[0].read_text().lower()
    assert "#123456" in svg
    assert PALETTE[0].lower() not in svg


@pytest.mark.parametrize(("palette", "paper"), [(PALETTE, "#ffffff"), (PALETTE_DARK, "#15181c")])
def test_colours_contrast_with_the_background(palette, paper):
    for colour in palette:
        light, dark = sorted((luminance(colour), luminance(paper)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) > 2.0, colour
    assert config(dark=paper != "#ffffff")["range"]["category"] == list(palette)
