"""The sink and the source against Elasticsearch: the tests that they pass on OpenSearch.

This Elasticsearch has no module for _delete_by_query, _reindex, unsigned_long and processors, so it is not asked for
truncates, nor for the mapping of such numbers."""

from __future__ import annotations

import pytest

from tests.adaptors.opensearch.sink import test_contract
from tests.adaptors.opensearch.sink.test_writer import (
    test_a_batch_that_searches_see,
    test_a_change_after_a_whole_document_in_one_batch,
    test_a_change_keeps_what_it_does_not_name_byte_by_byte,
    test_a_document_in_several_units_of_a_batch,
    test_a_row_that_the_index_cannot_hold,
    test_a_type_that_has_changed_says_the_steps,
    test_a_version_that_another_program_has_written_is_passed,
    test_an_index_that_is_dropped_while_it_is_written,
    test_ids,
    test_names_of_indexes,
    test_routing,
    test_rows_without_a_key_have_their_place_as_id,
    test_the_log_grows_and_a_key_goes_on_at_offset_0,
    test_the_log_of_a_pipeline_that_is_made_again_begins_at_0,
    test_two_namespaces_for_one_index,
    test_what_a_run_thought_dead_sends_late_changes_nothing,
)
from tests.adaptors.opensearch.source.test_reader import (
    TestSearchReader,
    test_a_copy_is_of_one_moment,
    test_an_index_is_copied_elsewhere,
    test_columns_of_any_shape,
    test_what_is_not_there,
)

__all__ = [
    "TestSearchReader",
    "test_a_batch_that_searches_see",
    "test_a_change_after_a_whole_document_in_one_batch",
    "test_a_change_keeps_what_it_does_not_name_byte_by_byte",
    "test_a_copy_is_of_one_moment",
    "test_a_document_in_several_units_of_a_batch",
    "test_a_row_that_the_index_cannot_hold",
    "test_a_type_that_has_changed_says_the_steps",
    "test_a_version_that_another_program_has_written_is_passed",
    "test_an_index_is_copied_elsewhere",
    "test_an_index_that_is_dropped_while_it_is_written",
    "test_columns_of_any_shape",
    "test_ids",
    "test_names_of_indexes",
    "test_routing",
    "test_rows_without_a_key_have_their_place_as_id",
    "test_the_log_grows_and_a_key_goes_on_at_offset_0",
    "test_the_log_of_a_pipeline_that_is_made_again_begins_at_0",
    "test_two_namespaces_for_one_index",
    "test_what_a_run_thought_dead_sends_late_changes_nothing",
    "test_what_is_not_there",
]

pytestmark = pytest.mark.server


class TestWriter(test_contract.TestSearchWriter):
    test_truncate = None


class TestOffsets(test_contract.TestOffsets):
    test_truncate = None
