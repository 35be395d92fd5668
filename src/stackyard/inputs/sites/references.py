"""The values that a study has to reach: in a site.yaml for everybody, in a study.yaml for one study."""

from __future__ import annotations

from stackyard.inputs.reading.latemodel import Field, LateModel


class StudyReference(LateModel):
    """The value that a study reaches in one metric on this machine."""

    study: str = Field("", description="The name of the study, or its program's; empty: every study")
    metric: str = Field(description="As in the column of that name, e.g. images/s")
    nodes: int = Field(0, ge=0, description="The size; 0: each size")
    variant: str = Field("", description="Empty: each variant")
    value: float = Field(ge=0, allow_inf_nan=False, description="Expected median, in `unit`")
    low: float = Field(
        0, ge=0, le=1, description="Below value x (1 - low) the study fails; 0.05 is 5 %; 0: no lower limit"
    )
    high: float = Field(0, ge=0, description="Above value x (1 + high) the study fails; 0: no upper limit")
    unit: str = Field("", description="That of the metric; another one is an error; empty: any")

    def checked(self) -> None:
        """Raise ValueError if it has no value or no limit."""
        if not self.value:
            raise ValueError("a reference needs a `value` above 0: its limits are shares of it")
        if not (self.low or self.high):
            raise ValueError("a reference needs `low` or `high`: without a limit nothing fails")
