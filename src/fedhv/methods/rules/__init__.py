"""Loss-only rules: the next weights from the reported losses, with exactly FedHV's communication."""

RULES: dict[str, str] = {
    "fixed": "fedhv.methods.rules.fixed:Fixed",
    "normalised": "fedhv.methods.rules.normalised:Normalised",
    "power": "fedhv.methods.rules.power:Power",
    "geometric": "fedhv.methods.rules.geometric:Geometric",
    "stch": "fedhv.methods.rules.stch:STCH",
    "afl": "fedhv.methods.rules.afl:AFL",
    "dwa": "fedhv.methods.rules.dwa:DWA",
    "famo": "fedhv.methods.rules.famo:FAMO",
    "uncertainty": "fedhv.methods.rules.uncertainty:Uncertainty",
    "imtl-l": "fedhv.methods.rules.imtl_l:IMTLL",
    "fedhv-moving": "fedhv.methods.rules.moving:MovingFedHV",
}
"""The location of each rule. Its class is imported when it is looked up. The names are the classes' `name`."""
