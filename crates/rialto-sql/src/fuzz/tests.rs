//! The targets on bytes from a seed and on the kept inputs.

use rialto::fuzz::Suite;

use super::TARGETS;

/// Its stack is as deep as that of a server's session.
const SUITE: Suite = Suite { targets: &TARGETS, stack_bytes: 8 << 20 };

#[test]
fn the_kept_inputs_hold() {
    SUITE.try_kept();
}

#[test]
fn any_text_is_statements_or_an_error() {
    SUITE.try_seeds("sql_text");
}

#[test]
fn any_data_of_a_copy_come_out_as_they_went_in_or_are_an_error() {
    SUITE.try_seeds("copy_text");
}

#[test]
fn any_lines_of_csv_come_out_as_they_went_in_or_are_an_error() {
    SUITE.try_seeds("copy_csv");
}

#[test]
fn any_tuples_come_out_as_they_went_in_or_are_an_error() {
    SUITE.try_seeds("copy_binary");
}

#[test]
fn any_bytes_are_an_array_or_an_error() {
    SUITE.try_seeds("array_arguments");
}
