"""What the tests of claims share."""

from typing import Any

import pytest
import yaml

from made_up_claims import DESCRIBED, science
from rectifiers.claims import archive as claim_records
from rectifiers.claims import claims as module
from rectifiers.claims.claims import Claim
from rectifiers.runs.identity import arm_hash


@pytest.fixture
def made_up(monkeypatch) -> Any:
    """Make a claim of this description whose arms are known."""

    def make(**changes: Any) -> Claim:
        described = yaml.safe_load(DESCRIBED) | changes
        arms = {arm: arm_hash(science(arm, 0)) for arm in described["arms"]}
        monkeypatch.setattr(claim_records, "arm_hashes", lambda: {"made_up": arms})
        claim = module.parse("made_up", described)
        monkeypatch.setattr(claim_records, "claims", lambda: (claim,))
        return claim

    return make
