"""Reports as JUnit XML, which continuous integration reads: a suite for each scenario, a case for each rule."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from hil.scenarios.report import Report
from shared.printable import printable


def to_junit(reports: Sequence[Report]) -> str:
    """The XML. A rule that is broken is a failure, one that could not be judged is skipped."""
    root = ElementTree.Element("testsuites", name="headtail hil")
    for report in reports:
        rules = report.judgement.rules
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=report.scenario.name,
            tests=str(len(rules)),
            failures=str(len(report.judgement.broken)),
            skipped=str(sum(not rule.judged for rule in rules)),
            errors="0",
            time=f"{report.seconds:.1f}",
        )
        for rule in rules:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"hil.{report.scenario.name}", name=printable(rule.expected), time="0"
            )
            found = printable(rule.found)
            if not rule.judged:
                ElementTree.SubElement(case, "skipped", message=printable(f"{found}: {report.judgement.noisy}"))
            elif not rule.holds:
                ElementTree.SubElement(case, "failure", message=found)
            else:
                ElementTree.SubElement(case, "system-out").text = found
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
