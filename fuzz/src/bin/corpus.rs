//! The kept corpora, for `.ci/fuzz`:
//!
//! - `corpus targets` lists the targets, each with the length of its longest input.
//! - `corpus unpack TARGET DIRECTORY` writes the kept inputs as files.
//! - `corpus pack TARGET DIRECTORY` keeps the files as inputs that cover the target, beside those that once failed.
//! - `corpus keep TARGET FILE...` keeps inputs that fail, for good.

use std::error::Error;
use std::path::Path;
use std::{env, fs, io};

use rialto::fuzz::{Corpus, Target};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["targets"] => {
            rialto_fuzz::targets().for_each(|target| println!("{} {}", target.name, target.longest));
            Ok(())
        }
        ["unpack", target, directory] => unpack(&rialto_fuzz::target(target)?, Path::new(directory)),
        ["pack", target, directory] => pack(&rialto_fuzz::target(target)?, Path::new(directory)),
        ["keep", target, ref files @ ..] => keep(&rialto_fuzz::target(target)?, files),
        _ => Err("expected: targets | unpack TARGET DIRECTORY | pack TARGET DIRECTORY | keep TARGET FILE..."
            .into()),
    }
}

/// The target's corpus; an empty one if it has none yet.
fn load(target: &Target) -> io::Result<Corpus> {
    match Corpus::load(target.name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Corpus::default()),
        corpus => corpus,
    }
}

fn unpack(target: &Target, directory: &Path) -> Result<(), Box<dyn Error>> {
    let Corpus { failed, covering } = load(target)?;
    for (number, input) in failed.iter().chain(&covering).enumerate() {
        fs::write(directory.join(format!("kept-{number}")), input)?;
    }
    Ok(())
}

fn pack(target: &Target, directory: &Path) -> Result<(), Box<dyn Error>> {
    let mut corpus = load(target)?;
    let inputs =
        fs::read_dir(directory)?.map(|file| fs::read(file?.path())).collect::<io::Result<Vec<_>>>()?;
    let found = inputs.len();
    corpus.cover_by(inputs, target.kept);
    corpus.store(target.name)?;
    println!("{}: kept {} of {found} inputs that cover it", target.name, corpus.covering.len());
    Ok(())
}

fn keep(target: &Target, files: &[&str]) -> Result<(), Box<dyn Error>> {
    let mut corpus = load(target)?;
    for file in files {
        corpus.failed.insert(fs::read(file)?);
    }
    Ok(corpus.store(target.name)?)
}
