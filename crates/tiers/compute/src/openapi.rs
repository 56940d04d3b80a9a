//! The OpenAPI description of the service, served at `/openapi.json`.

use serde_json::{Value, json};

use crate::matrix::MODULUS;
use crate::request::RequestLimits;

/// OpenAPI 3.1: what the service takes and answers, with its bounds.
pub(crate) fn description(limits: &RequestLimits) -> Value {
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Kendall compute",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0" },
            "description": "Powers of square matrices by repeated multiplication (cost N³·E) and prime factors of integers, computed by worker threads behind one first-come-first-served queue."
        },
        "paths": {
            "/compute": { "get": get(limits), "post": post() },
            "/health": { "get": {
                "summary": "Whether the service answers",
                "responses": { "200": answer("It does.", json!({
                    "type": "object",
                    "required": ["ready"],
                    "properties": { "ready": { "type": "boolean" } }
                })) }
            } },
            "/openapi.json": { "get": {
                "summary": "This description",
                "responses": { "200": answer("It.", json!({ "type": "object" })) }
            } }
        },
        "components": { "schemas": schemas(limits) }
    })
}

fn post() -> Value {
    json!({
        "summary": "Computes what the body asks for",
        "requestBody": {
            "required": true,
            "content": { "application/json": { "schema": reference("Request") } }
        },
        "responses": responses()
    })
}

fn get(limits: &RequestLimits) -> Value {
    let properties = request_properties(limits);
    let parameter = |name: &str| {
        let schema = match name {
            "matrix" => json!({ "type": "string", "examples": ["1,2;3,4"] }),
            _ => properties[name].clone(),
        };
        json!({ "name": name, "in": "query", "schema": schema })
    };
    let names = ["operation", "matrix", "size", "seed", "exponent", "integer", "result"];
    json!({
        "summary": "Computes what the query asks for; rows of a matrix are parted by `;`, entries by `,`",
        "parameters": names.map(parameter),
        "responses": responses()
    })
}

fn responses() -> Value {
    let problem = |text: &str| {
        json!({
            "description": text,
            "content": { "application/problem+json": { "schema": reference("Problem") } }
        })
    };
    json!({
        "200": answer("The result.", reference("Answer")),
        "400": problem("No JSON, no query, not one Host, or a body that was cut off."),
        "408": problem("The body did not come in time."),
        "413": problem("The body or the matrix is too large."),
        "415": problem("The body is not application/json."),
        "422": problem("A value that cannot be: a matrix that is not square, a negative exponent, …"),
        "503": problem("The queue is full (with Retry-After), or the computation took too long.")
    })
}

fn schemas(limits: &RequestLimits) -> Value {
    json!({
        "Request": {
            "type": "object",
            "additionalProperties": false,
            "properties": request_properties(limits)
        },
        "Answer": {
            "type": "object",
            "required": ["result", "cached", "waiting_time_ns", "service_time_ns"],
            "properties": {
                "result": { "oneOf": [reference("Power"), reference("Factors")] },
                "cached": { "type": "boolean" },
                "waiting_time_ns": { "type": "integer", "description": "In the queue." },
                "service_time_ns": { "type": "integer", "description": "At the worker." }
            }
        },
        "Power": {
            "type": "object",
            "required": ["operation", "size", "exponent", "modulus", "checksum"],
            "properties": {
                "operation": { "const": "power" },
                "size": { "type": "integer" },
                "exponent": { "type": "integer" },
                "modulus": { "const": MODULUS },
                "checksum": checksum("the entries as little-endian 32-bit numbers, row by row"),
                "matrix": matrix()
            }
        },
        "Factors": {
            "type": "object",
            "required": ["operation", "integer", "checksum"],
            "properties": {
                "operation": { "const": "factorize" },
                "integer": { "type": "integer" },
                "checksum": checksum("the factors as little-endian 64-bit numbers"),
                "factors": { "type": "array", "items": { "type": "integer" } }
            }
        },
        "Problem": {
            "type": "object",
            "required": ["status", "title", "detail"],
            "properties": {
                "status": { "type": "integer" },
                "title": { "type": "string", "description": "A name that programs may rely on." },
                "detail": { "type": "string", "description": "What was found and what is accepted." }
            }
        }
    })
}

fn request_properties(limits: &RequestLimits) -> Value {
    json!({
        "operation": {
            "enum": ["power", "factorize"],
            "description": "power unless an integer is given."
        },
        "matrix": matrix(),
        "size": {
            "type": "integer", "minimum": 1, "maximum": limits.size,
            "description": "In place of a matrix: one of this size is made from the seed."
        },
        "seed": { "type": "integer", "minimum": 0, "default": 1 },
        "exponent": {
            "type": "integer", "minimum": 0, "maximum": limits.exponent,
            "description": "Number of multiplications."
        },
        "integer": {
            "type": ["integer", "string"], "minimum": 1,
            "description": "Up to 18446744073709551615, in digits or as text."
        },
        "result": {
            "enum": ["checksum", "whole"],
            "description": "Default: checksum of a power, whole of a factorisation."
        }
    })
}

fn matrix() -> Value {
    json!({
        "type": "array",
        "items": { "type": "array", "items": { "type": "integer" } },
        "description": format!("Rows of whole numbers, taken modulo {MODULUS}.")
    })
}

fn checksum(of: &str) -> Value {
    json!({ "type": "string", "pattern": "^[0-9a-f]{16}$", "description": format!("FNV-1a of {of}.") })
}

fn answer(text: &str, schema: Value) -> Value {
    json!({ "description": text, "content": { "application/json": { "schema": schema } } })
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}
