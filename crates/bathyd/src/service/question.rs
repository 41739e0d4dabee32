//! The text of a question or command.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::Failure;

/// The fields of a question or command, apart from the one that says which it is.
pub(super) fn parse<T: DeserializeOwned>(question: &Value) -> Result<T, Failure> {
    let mut fields = question.clone();
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|name, _| name != "query" && name != "command");
    }
    T::deserialize(fields).map_err(|error| {
        Failure::new(
            error.to_string(),
            "README.md of bathyd describes the questions and commands",
        )
    })
}
