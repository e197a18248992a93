use std::fmt;

/// Whose fault it is, with a text for a person.
#[derive(Debug)]
pub enum Error {
    /// What was to be encoded or rendered.
    BadInput(String),
    /// The model's files, or the library.
    Broken(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Error::BadInput(text) | Error::Broken(text)) = self;
        out.write_str(text)
    }
}

/// Larger files are no model's: the largest known take a tenth of it.
const MAX_FILE: u64 = 256 << 20;

/// The text of a file of a model.
pub fn read_file(path: &std::path::Path) -> Result<String> {
    let broken = |what: &dyn fmt::Display| Error::Broken(format!("{}: {what}", path.display()));
    let about = std::fs::metadata(path).map_err(|error| broken(&error))?;
    if !about.is_file() {
        return Err(broken(&"is not a file"));
    }
    if about.len() > MAX_FILE {
        return Err(broken(&"is larger than 256 MiB"));
    }
    std::fs::read_to_string(path).map_err(|error| broken(&error))
}

/// A file of a model, parsed as JSON.
pub fn read_json(path: &std::path::Path) -> Result<serde_json::Value> {
    serde_json::from_str(&read_file(path)?)
        .map_err(|error| Error::Broken(format!("{}: {error}", path.display())))
}
