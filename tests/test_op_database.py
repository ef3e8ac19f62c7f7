"""Every op of PyTorch's own op database, recorded on one set of values and replayed on another.

All ops, ten samples of each, two with gradients; `--whole-op-database`: all samples.
"""

import pytest
from op_database.refused import REFUSED, REFUSED_WITH_GRADIENTS
from op_database.sweep import GRADIENT, Sweeper, all_variants, gradient_variants


@pytest.fixture(scope="module")
def sweeper():
    sweeper = Sweeper()
    yield sweeper
    sweeper.close()


def check(outcomes, reasons, property):
    property("op database", [outcome.kind for outcome in outcomes])
    assert [o for o in outcomes if o.kind == "wrong"] == []
    refused = [o for o in outcomes if o.kind == "refused"]
    assert [o for o in refused if not any(reason in o.why for reason in reasons)] == []
    if reasons:
        assert refused, "is in the list of refused ops, but is replayed"
    if all(o.kind == "skipped" for o in outcomes):
        pytest.skip("PyTorch itself does not run it on the CPU")


@pytest.mark.parametrize("name", all_variants())
def test_replay_equals_eager_or_is_refused(name, sweeper, pytestconfig, record_property):
    whole = pytestconfig.getoption("--whole-op-database") or name in REFUSED
    reasons = [REFUSED[name]] if name in REFUSED else []
    check(sweeper.sweep(name, most=None if whole else 10), reasons, record_property)


@pytest.mark.parametrize("name", gradient_variants())
def test_forward_and_backward_equal_eager_or_are_refused(
    name, sweeper, pytestconfig, record_property
):
    reasons = REFUSED_WITH_GRADIENTS.get(name.removesuffix(GRADIENT), ())
    whole = pytestconfig.getoption("--whole-op-database") or reasons
    check(sweeper.sweep(name, most=None if whole else 2), reasons, record_property)


def test_list_of_refused_ops_names_ops_of_the_database():
    assert set(REFUSED) <= set(all_variants())
    assert {name + GRADIENT for name in REFUSED_WITH_GRADIENTS} <= set(gradient_variants())
