//! The targets on bytes from a seed and on the inputs that are kept.

use rialto::fuzz::Target;

use super::TARGETS;

/// On a stack as deep as a session's.
fn on_a_session_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(8 << 20).spawn(work).expect("a thread starts");
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

fn run(name: &str) {
    let target = *TARGETS.iter().find(|target| target.name == name).expect("it is a target");
    on_a_session_stack(move || target.try_seeds());
}

#[test]
fn the_kept_inputs_hold() {
    on_a_session_stack(|| TARGETS.iter().for_each(Target::try_kept));
}

#[test]
fn any_text_is_statements_or_an_error() {
    run("sql_text");
}

#[test]
fn any_data_of_a_copy_come_out_as_they_went_in_or_are_an_error() {
    run("copy_text");
}
