//! `schema`: how the broker reads JSON Schemas.

use std::path::PathBuf;

use serde_json::Value;

use super::exit::Exit;
use crate::config::load_schema;
use crate::schema::Schema;

/// Print a JSON Schema in the canonical form the broker publishes, or say why it is refused
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File with a schema, or with a list of schemas: a list prints a list, null where one is refused
    #[arg(long, value_name = "FILE", required = true)]
    source: PathBuf,
}

/// Runs the command.
pub fn run(args: Args) -> Exit {
    let document = match load_schema(&args.source) {
        Ok(document) => document,
        Err(error) => return Exit::config(&error),
    };
    if let Value::Array(schemas) = &document {
        let forms = schemas.iter().map(|schema| match Schema::compile_types(schema) {
            Ok(schema) => schema.canonical().to_owned(),
            Err(_) => "null".to_owned(),
        });
        println!("[{}]", forms.collect::<Vec<_>>().join(","));
        return Exit::Done;
    }
    match Schema::compile(&document, true) {
        Ok(schema) => {
            println!("{}", schema.canonical());
            Exit::Done
        }
        Err(error) => Exit::Failed.because(format_args!("{}: {error}", args.source.display())),
    }
}
