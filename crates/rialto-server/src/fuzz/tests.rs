//! The targets on bytes from a seed and on the inputs that are kept.

use rialto::fuzz::Target;

use super::TARGETS;

/// On a stack as deep as a session's.
fn on_a_session_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(crate::STACK_BYTES).spawn(work);
    thread.expect("a thread starts").join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
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
fn any_bytes_are_answered_by_whole_messages() {
    run("protocol_bytes");
}

#[test]
fn a_session_outlives_any_messages() {
    run("protocol_messages");
}
