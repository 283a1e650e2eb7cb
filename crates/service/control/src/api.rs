//! Operations, each with its handler and its part of the OpenAPI document. One call adds an
//! operation's handler and its part of the document, so that neither exists without the other.
//!
//! This module contains no operation itself. A program adds operations of other crates to the
//! operations of [`crate::routes`] before it starts a server. Schemas come from the types
//! (schemars); this module assembles the other parts of the document from a dozen objects.

use axum::Router;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use crate::model::Problem;
use crate::served_array::PROBLEM_JSON;

/// A function that makes a type's schema, or a reference to the schema.
type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// An operation of the API.
pub struct Operation {
    method: Method,
    path: &'static str,
    id: &'static str,
    about: &'static str,
    query: Vec<(&'static str, &'static str, SchemaOf)>,
    body: Option<(&'static str, SchemaOf)>,
    answers: Vec<Answer>,
}

struct Answer {
    status: u16,
    about: &'static str,
    media: &'static str,
    schema: SchemaOf,
}

impl Operation {
    /// Makes an operation with its method, path, name for programs, and one-line description.
    #[must_use]
    pub fn new(method: Method, path: &'static str, id: &'static str, about: &'static str) -> Self {
        Self { method, path, id, about, query: Vec::new(), body: None, answers: Vec::new() }
    }

    /// Adds an optional query parameter to the operation.
    #[must_use]
    pub fn query<T: JsonSchema>(mut self, name: &'static str, about: &'static str) -> Self {
        self.query.push((name, about, schema_of::<T>));
        self
    }

    /// Adds a request body to the operation.
    #[must_use]
    pub fn body<T: JsonSchema>(mut self, about: &'static str) -> Self {
        self.body = Some((about, schema_of::<T>));
        self
    }

    /// Adds a JSON answer to the operation.
    #[must_use]
    pub fn answers<T: JsonSchema>(self, status: u16, about: &'static str) -> Self {
        self.answers_as::<T>(status, "application/json", about)
    }

    /// Adds an answer of another media type to the operation, such as text or lines of JSON. The
    /// schema describes one line.
    #[must_use]
    pub fn answers_as<T: JsonSchema>(
        mut self,
        status: u16,
        media: &'static str,
        about: &'static str,
    ) -> Self {
        self.answers.push(Answer { status, about, media, schema: schema_of::<T> });
        self
    }

    fn document(&self, generator: &mut SchemaGenerator) -> Value {
        let mut responses = Map::new();
        for Answer { status, about, media, schema } in &self.answers {
            let response = responses.entry(status.to_string());
            let response =
                response.or_insert_with(|| json!({ "description": about, "content": {} }));
            response["content"][*media] = json!({ "schema": schema(generator) });
        }
        let problem = schema_of::<Problem>(generator);
        responses.insert(
            "default".into(),
            json!({
                "description": "The request was refused; nothing was changed.",
                "content": { PROBLEM_JSON: { "schema": problem } },
            }),
        );
        let mut object = json!({
            "operationId": self.id,
            "summary": self.about,
            "responses": responses,
        });
        if !self.query.is_empty() {
            let parameter = |(name, about, schema): &(&str, &str, SchemaOf)| {
                json!({
                    "name": name,
                    "in": "query",
                    "required": false,
                    "description": about,
                    "schema": schema(generator),
                })
            };
            object["parameters"] = self.query.iter().map(parameter).collect();
        }
        if let Some((about, schema)) = self.body {
            object["requestBody"] = json!({
                "description": about,
                "required": true,
                "content": { "application/json": { "schema": schema(generator) } },
            });
        }
        object
    }
}

/// The operations of the API, and their OpenAPI document.
pub struct Api {
    router: Router,
    paths: Map<String, Value>,
    generator: SchemaGenerator,
}

impl Default for Api {
    fn default() -> Self {
        let settings = SchemaSettings::draft2020_12().for_serialize().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        Self { router: Router::new(), paths: Map::new(), generator: settings.into_generator() }
    }
}

impl Api {
    /// Adds an operation.
    ///
    /// # Panics
    /// An operation with this method and path exists already.
    #[must_use]
    pub fn add<H, T>(mut self, operation: &Operation, handler: H) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        let method = operation.method.clone();
        let filter = MethodFilter::try_from(method).expect("one of the usual methods");
        self.router = self.router.route(operation.path, on(filter, handler));
        let document = operation.document(&mut self.generator);
        let path = self.paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = document;
        self
    }

    /// Adds a type to the document that no operation returns.
    #[must_use]
    pub fn describe<T: JsonSchema>(mut self) -> Self {
        let _reference = schema_of::<T>(&mut self.generator);
        self
    }

    /// The OpenAPI document of all operations.
    #[must_use]
    pub fn document(&self) -> Value {
        let schemas = self.generator.clone().take_definitions(true);
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "braid, the control API of a running array",
                "version": crate::model::VERSION.to_string(),
                "summary": "HTTP/1.1 with JSON on the array's Unix socket, for the user who serves it and for root.",
                "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            },
            "servers": [{
                "url": "http://braid",
                "description": "Only by the names braid, localhost, 127.0.0.1 and [::1]; every \
                                method but GET needs application/json: curl --unix-socket SOCKET \
                                http://braid/v1/array",
            }],
            "paths": self.paths,
            "components": { "schemas": schemas },
        })
    }

    pub(crate) fn router(self) -> Router {
        self.router
    }
}
