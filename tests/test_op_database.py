"""Every op of PyTorch's own op database, recorded on one set of values and replayed on another.

All ops, ten samples of each; `--whole-op-database`: all samples.
"""

import pytest
from op_database.refused import REFUSED
from op_database.sweep import Sweeper, all_variants, gradient_variants


@pytest.fixture(scope="module")
def sweeper():
    sweeper = Sweeper()
    yield sweeper
    sweeper.close()


@pytest.mark.parametrize("name", all_variants())
def test_replay_equals_eager_or_is_refused(name, sweeper, pytestconfig, record_property):
    whole = pytestconfig.getoption("--whole-op-database") or name in REFUSED
    outcomes = sweeper.sweep(name, most=None if whole else 10)
    record_property("op database", [outcome.kind for outcome in outcomes])

    assert [o for o in outcomes if o.kind == "wrong"] == []
    refused = [o for o in outcomes if o.kind == "refused"]
    if name in REFUSED:
        assert refused, "is in the list of refused ops, but is replayed"
        assert [o for o in refused if REFUSED[name] not in o.why] == []
    assert refused == [] or name in REFUSED
    if all(o.kind == "skipped" for o in outcomes):
        pytest.skip("PyTorch itself does not run it on the CPU")


@pytest.mark.parametrize("name", gradient_variants())
def test_forward_and_backward_equal_eager_or_are_refused(
    name, sweeper, pytestconfig, record_property
):
    whole = pytestconfig.getoption("--whole-op-database")
    outcomes = sweeper.sweep(name, most=None if whole else 2)
    record_property("op database", [outcome.kind for outcome in outcomes])
    assert [o for o in outcomes if o.kind == "wrong"] == []
    if all(o.kind == "skipped" for o in outcomes):
        pytest.skip("it has no gradients on the CPU")


def test_list_of_refused_ops_names_ops_of_the_database():
    assert set(REFUSED) <= set(all_variants())
