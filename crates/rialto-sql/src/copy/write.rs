//! Rows of a COPY to the client as its data.

use rialto::row::Value;

use super::{binary, csv, text};
use crate::parse::{CopyFormat, CopyHeader};
use crate::prepared::CopyPlan;
use crate::values;

/// The data of a COPY to the client. Invariant: the header of the binary format comes in one piece with the first tuple,
/// or with the end marker, as PostgreSQL sends it.
#[derive(Default)]
pub struct CopyOut {
    /// Whether the header of the binary format was written.
    begun: bool,
}

impl CopyOut {
    /// The line of the columns' names, if the COPY has one.
    pub fn header(plan: &CopyPlan) -> Option<Vec<u8>> {
        if plan.options.header == CopyHeader::Absent {
            return None;
        }
        let mut line = Vec::new();
        for (index, column) in plan.output.iter().enumerate() {
            put(column.name.as_bytes(), (index, false), plan, &mut line);
        }
        line.push(b'\n');
        Some(line)
    }

    /// Appends a row.
    pub fn row(&mut self, values: &[Value], plan: &CopyPlan, out: &mut Vec<u8>) {
        if plan.options.format == CopyFormat::Binary {
            self.tuple(values, plan, out);
            return;
        }
        let mut plain = Vec::new();
        for (index, (value, column)) in values.iter().zip(&plan.output).enumerate() {
            plain.clear();
            match values::text::write(value, column.sql_type, &mut plain) {
                Some(()) => {
                    let forced = plan.forced.get(index).is_some_and(|forced| forced.quote);
                    put(&plain, (index, forced), plan, out);
                }
                None => {
                    delimit(index, plan, out);
                    out.extend_from_slice(plan.options.null.as_bytes());
                }
            }
        }
        out.push(b'\n');
    }

    /// What comes behind the last row, if anything does.
    pub fn end(&mut self, plan: &CopyPlan) -> Option<Vec<u8>> {
        if plan.options.format != CopyFormat::Binary {
            return None;
        }
        let mut last = Vec::new();
        self.begin(&mut last);
        last.extend_from_slice(&[0xff, 0xff]);
        Some(last)
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.begun, true) {
            out.extend_from_slice(binary::SIGNATURE);
            out.extend_from_slice(&[0; 8]);
        }
    }

    fn tuple(&mut self, values: &[Value], plan: &CopyPlan, out: &mut Vec<u8>) {
        self.begin(out);
        out.extend_from_slice(&(values.len() as u16).to_be_bytes());
        for (value, column) in values.iter().zip(&plan.output) {
            let at = out.len();
            out.extend_from_slice(&[0xff; 4]);
            if values::binary::write(value, column.sql_type, out).is_some() {
                let length = (out.len() - at - 4) as u32;
                out[at..at + 4].copy_from_slice(&length.to_be_bytes());
            }
        }
    }
}

fn delimit(index: usize, plan: &CopyPlan, out: &mut Vec<u8>) {
    if index > 0 {
        out.push(plan.options.delimiter);
    }
}

/// Appends the text of a value.
fn put(plain: &[u8], (index, forced): (usize, bool), plan: &CopyPlan, out: &mut Vec<u8>) {
    delimit(index, plan, out);
    if plan.options.format == CopyFormat::Csv {
        return csv::write(plain, &plan.options, (forced, plan.output.len() == 1), out);
    }
    for &byte in plain {
        text::escape(byte, plan.options.delimiter, out);
    }
}
