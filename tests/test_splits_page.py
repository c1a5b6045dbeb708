"""The page that says when to split: what stands in docs/ is what the measured data give, and it has all that was asked."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from hil.splits.answers import RATIOS
from hil.splits.cli import DATA, PAGE, main
from hil.splits.findings import Findings, decode_findings
from hil.splits.markdown import bullets, paragraph, table
from hil.splits.overview import draw_overview
from hil.splits.page import MAP, write_page
from hil.splits.subjects import ORDER, SUBJECTS, subject_of
from hil.splits.words import Outcome
from shared.errors import UserError

DOCS = Path(__file__).parent.parent / "docs"
FINDINGS = decode_findings((DOCS / DATA).read_bytes(), DATA)
WRITTEN = (DOCS / PAGE).read_text(encoding="utf-8")
LINK = re.compile(r"^\| (20|50|200|1000) Mbit/s, (2|5|20) ms \|")


def section(title: str) -> str:
    return WRITTEN.split(f"\n### {title}\n")[1].split("\n#")[0]


def test_the_page_is_what_the_measured_data_give() -> None:
    assert write_page(FINDINGS) == WRITTEN


def test_the_map_is_what_the_measured_data_give() -> None:
    outcomes = [Outcome.of(subject_of(finding.name).title, finding) for finding in FINDINGS.models]
    assert draw_overview(outcomes) + "\n" == (DOCS / MAP).read_text(encoding="utf-8")


def test_all_six_models_were_measured() -> None:
    assert tuple(finding.name for finding in FINDINGS.models) == ORDER
    assert len(ORDER) == 6


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_each_model_has_its_twelve_links_for_each_device_and_its_four_rules(subject) -> None:
    for ratio in RATIOS:
        lines = section(f"{subject.title}: device {ratio:g} times slower").splitlines()
        found = [match.groups() for line in lines if (match := LINK.match(line))]
        assert found == [(rate, rtt) for rate in ("20", "50", "200", "1000") for rtt in ("2", "5", "20")]
    rules = section(f"{subject.title}: other agreements, private input")
    assert all(f"\n| {rule} |" in rules for rule in ("0.90", "0.95", "0.99", "0.95, private"))


def test_each_row_has_one_bold_time_and_names_the_road_that_has_it() -> None:
    columns = {"device": 2, "raw input": 3, "coded input": 4, "split": 5}
    rows = [line.split("|") for line in WRITTEN.splitlines() if LINK.match(line) and line.count("|") == 7]
    assert len(rows) == 6 * 24
    for row in rows:
        bold = [number for number, cell in enumerate(row) if "**" in cell]
        assert bold == [columns[row[6].strip().removeprefix("≈ ")]]


def test_the_page_calls_itself_provisional_where_the_machine_was_busy() -> None:
    busy, quiet = (
        Findings(
            FINDINGS.format,
            tuple(
                msgspec.structs.replace(m, unsteady=unsteady, disturbed=0.0, rows_judged=subject_of(m.name).judged)
                for m in FINDINGS.models
            ),
        )
        for unsteady in (0.3, 0.01)
    )
    assert "**Provisional.**" in write_page(busy)
    assert "differed by up to 30%" in write_page(busy)
    assert "**Provisional.**" not in write_page(quiet)
    few = msgspec.structs.replace(quiet.models[0], rows_judged=1)
    assert "Plate detector was judged by fewer rows" in write_page(Findings(FINDINGS.format, (few, *quiet.models[1:])))


def test_paragraphs_wrap_lists_are_indented_and_tables_have_their_marks() -> None:
    long = paragraph("word " * 60)
    assert all(len(line) <= 120 for line in long.splitlines())
    assert len(long.splitlines()) > 1
    assert bullets(["word " * 40]).splitlines()[1].startswith("  word")
    assert table(["a", "b", "c"], [["1", "2", "3"]]) == "| a | b | c |\n| --- | --: | --- |\n| 1 | 2 | 3 |\n"


def test_the_command_writes_the_same_page_into_another_folder(tmp_path: Path) -> None:
    (tmp_path / DATA).write_bytes((DOCS / DATA).read_bytes())
    main(folder=tmp_path, measure=False, model=None, missing=False, timing=30.0)
    assert (tmp_path / PAGE).read_text(encoding="utf-8") == WRITTEN
    assert (tmp_path / MAP).is_file()


def test_what_cannot_be_done_is_said_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere: there is none"):
        main(folder=tmp_path / "nowhere", measure=False, model=None, missing=False, timing=30.0)
    with pytest.raises(
        UserError, match=r"when-to-split\.json: no such file; headtail when-to-split --measure makes it"
    ):
        main(folder=tmp_path, measure=False, model=None, missing=False, timing=30.0)
    with pytest.raises(UserError, match="give --measure, too"):
        main(folder=tmp_path, measure=False, model=["yolox"], missing=False, timing=30.0)
    with pytest.raises(UserError, match=r"model 'yolo' is not in this study; there are plate-detector"):
        main(folder=tmp_path, measure=True, model=["yolo"], missing=False, timing=30.0)
    assert list(tmp_path.iterdir()) == []
