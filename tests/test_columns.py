"""Columns and tables: values come back as they were, and the caller's arrays stay the caller's."""

from math import isnan, nan
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_diag.capture.workers_table import constant, constant_number
from dask_diag.columns import Categorical, PrefixStrings, concatenate
from dask_diag.model.table import Table

pytestmark = pytest.mark.once

MIXED = st.one_of(st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.text(max_size=1))


def typed(values):
    return [(type(value), value) for value in values]


def test_equal_values_of_different_types_stay_apart():
    assert typed(Categorical.of([1, True, 1.0, 1]).tolist()) == typed([1, True, 1.0, 1])


@given(st.lists(MIXED))
def test_labels_of_any_types_come_back_with_their_types(items):
    assert typed(Categorical.of(items).tolist()) == typed(items)


@given(st.lists(st.lists(MIXED), min_size=1))
def test_labels_of_any_types_are_put_end_to_end_with_their_types(parts):
    joined = concatenate([Categorical.of(part) for part in parts])
    assert typed(joined.tolist()) == typed(sum(parts, []))


def test_labels_hold_each_value_once_however_the_rows_are_given():
    assert Categorical.of(item for item in ["b", "a", "b"]).values == ("b", "a")
    assert Categorical.of([2, 2, 2.0]).values == (2, 2.0)
    nothing, same = Categorical.of([]), Categorical.of([nan, nan])
    assert nothing.tolist() == []
    assert all(map(isnan, same.tolist()))


@pytest.mark.parametrize("column", ["numbers", "codes"])
def test_the_array_that_a_caller_gives_stays_writable(column):
    given = np.zeros(3, np.uint8)
    table = Table({"a": given if column == "numbers" else Categorical(given, ["x", "y"])})
    given[0] = 1
    stored = table["a"] if column == "numbers" else table["a"].codes
    with pytest.raises(ValueError, match="read-only"):
        stored[0] = 0


def test_a_table_copies_no_array():
    given = np.zeros(1000)
    assert np.shares_memory(Table({"a": given})["a"], given)
    codes = np.zeros(1000, np.uint8)
    assert np.shares_memory(Categorical(codes, ["x"]).codes, codes)


def test_the_lengths_of_texts_are_read_only():
    texts = PrefixStrings.of(["a-1", "a-22"])
    with pytest.raises(ValueError, match="read-only"):
        texts.encoded[0][0] = 7


@given(st.lists(st.text(max_size=4), min_size=1), st.data())
def test_one_text_is_the_same_by_index_as_in_the_list(texts, data):
    column = PrefixStrings.of(texts)
    index = data.draw(st.integers(-len(texts), len(texts) - 1))
    assert column[index] == texts[index]
    assert column[np.int64(index)] == texts[index]


def test_every_text_of_a_long_column_is_found():
    count = 1025
    texts = [f"key-{number}é" for number in range(count)]
    column = PrefixStrings.of(texts)
    assert [column[number] for number in range(count)] == texts
    assert [column[number - count] for number in range(count)] == texts
    assert [column[500:][number] for number in (0, 1, -1)] == [texts[500], texts[501], texts[-1]]


@pytest.mark.parametrize("of", [PrefixStrings.of, Categorical.of])
@pytest.mark.parametrize("count, index", [(3, 3), (3, -4), (0, 0), (0, -1)])
def test_an_index_out_of_range_is_refused(of, count, index):
    with pytest.raises(IndexError):
        of([f"key-{number}" for number in range(count)])[index]


def test_one_text_of_a_million_decodes_no_other():
    count = 1_000_000
    heads = Categorical(np.zeros(count, np.uint8), ["key-"])
    column = PrefixStrings.from_encoded(heads, np.full(count, 7, np.uint8), b"0123456" * count)
    started = process_time()
    column.tolist()
    seconds_for_all = process_time() - started
    started = process_time()
    for index in range(0, count, 10_000):
        assert column[index] == "key-0123456"
    # A hundred single rows: decoding the column for each would take a hundred times as long.
    assert process_time() - started < seconds_for_all


def test_a_column_of_one_value_cannot_be_written_to_and_takes_no_memory():
    columns = (constant_number(7, 5), constant_number(0.5, 5), constant("x", 5).codes)
    for column, value in zip(columns, (7, 0.5, 0), strict=True):
        assert column.tolist() == [value] * 5
        assert not column.flags.writeable
        assert column.strides == (0,)
    assert constant("x", 0).tolist() == []
    assert constant_number(float("nan"), 0).dtype == float
