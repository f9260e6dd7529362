"""Reports: tables, figures, pages, TensorBoard and progress, from runs."""

from fedhv.report.groups import Group, ReportSweep, SettingStudy, StudyData
from fedhv.report.page import page
from fedhv.report.reading import RunData
from fedhv.report.study import make_study, read_study
from fedhv.report.tables import tables
from fedhv.report.writing import Report, write_report

__all__ = [
    "Group",
    "Report",
    "ReportSweep",
    "RunData",
    "SettingStudy",
    "StudyData",
    "make_study",
    "page",
    "read_study",
    "tables",
    "write_report",
]
