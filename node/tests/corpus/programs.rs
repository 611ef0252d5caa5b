//! How the programs under `drivers/` are started.

use std::path::{Path, PathBuf};

use crate::driver::Program;

/// A driver of `drivers/python`.
pub(crate) fn python(file: &str) -> Program {
    Program::Process(script(file).to_vec())
}

fn script(file: &str) -> [String; 2] {
    [variable("QUORUMSQL_PYTHON"), directory("python").join(file).display().to_string()]
}

/// A command-line client, which `drivers/python` feeds; `root` is where it is installed.
pub(crate) fn command_line(client: &str, root: &Path) -> Program {
    let arguments = [client.into(), root.display().to_string()];
    Program::Process([script("command_line.py"), arguments].concat())
}

/// A driver of `drivers/go`, which is one program.
pub(crate) fn go(driver: &str) -> Program {
    Program::Process(vec![variable("QUORUMSQL_CORPUS_GO"), driver.into()])
}

/// A driver of `drivers/java`, which is one program for all of JDBC.
pub(crate) fn java(scheme: &str) -> Program {
    let classes = variable("QUORUMSQL_CORPUS_JAVA");
    let argv = ["java", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", &classes, "Corpus", scheme];
    Program::Process(argv.map(str::to_owned).to_vec())
}

/// A driver of `drivers/node`; `NODE_PATH` has its packages.
pub(crate) fn node_js(file: &str) -> Program {
    let packages = variable("QUORUMSQL_NODE_MODULES");
    let script = directory("node").join(file).display().to_string();
    Program::Process(vec!["env".into(), format!("NODE_PATH={packages}"), "node".into(), script])
}

/// What `deploy/install.sh` exports about what it installed.
fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; deploy/test sets it"))
}

fn directory(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/drivers").join(language)
}
