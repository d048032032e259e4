//! The population (clause 4.3.3.1): what each table is loaded with.

use std::ops::RangeInclusive;

use rialto::io::Random;
use rialto::row::ValueRef;
use rialto::row::ValueRef::{Int2, Int4, Int8, Null, Text, Timestamp};
use rialto::{Result, Table, TableDef};

use super::random::{alphanumeric, data, digits, last_name, last_name_loaded, letters, state, within, zip};
use super::tables::{DISTRICTS, Shape, Tables, definitions, indexes};
use crate::data::{Data, IndexOf, Loader};

/// Where the random choices of a load come from: every load of one shape gives the same rows, but for their times.
const SEED: u64 = 0x07fc_c005;
/// A tax is 0.0000 to 0.2000, a discount 0.0000 to 0.5000.
const TAX_MAX: u32 = 2_000;
const DISCOUNT_MAX: u32 = 5_000;
/// What a customer paid when loaded, in cents: the balance is less by it.
const PAID_CENTS: i32 = 1_000;
const CREDIT_LIMIT_CENTS: i64 = 5_000_000;

impl Data<9, 3> for Shape {
    const NAME: &'static str = "a TPC-C database";
    const TABLE: &'static str = "tpcc";
    const KIND: &'static str = "tpcc";
    const SIZES: [&'static str; 3] = ["warehouses", "items", "customers"];

    fn of_sizes([warehouses, items, customers]: [u32; 3]) -> Shape {
        Shape { warehouses, items, customers }
    }

    fn sizes(&self) -> [u32; 3] {
        [self.warehouses, self.items, self.customers]
    }

    fn tables() -> [TableDef; 9] {
        definitions()
    }

    fn indexes() -> Vec<IndexOf> {
        indexes().into()
    }

    fn fill(&self, loader: &mut Loader<'_>, tables: &[Table; 9]) -> Result<()> {
        let (tables, now_us) = (Tables::new(tables.clone()), loader.clock().calendar_us());
        let random = Random::new(SEED);
        let mut population = Population { loader, shape: *self, random, now_us, texts: Default::default() };
        population.items(&tables.item)?;
        for warehouse in places(self.warehouses) {
            population.warehouse(&tables, warehouse)?;
            population.loader.tell(&format!("{warehouse} of {} warehouses loaded", self.warehouses));
        }
        Ok(())
    }
}

struct Population<'a, 'loader> {
    loader: &'a mut Loader<'loader>,
    shape: Shape,
    random: Random,
    now_us: i64,
    /// Memory for the texts of a row.
    texts: [String; 11],
}

/// The numbers of a run of keys, counted from 1.
fn numbers(count: u32) -> RangeInclusive<i32> {
    1..=count as i32
}

/// Likewise, of warehouses or districts.
fn places(count: u32) -> RangeInclusive<i16> {
    1..=count as i16
}

impl Population<'_, '_> {
    fn within(&mut self, low: u32, high: u32) -> i32 {
        within(&mut self.random, low, high) as i32
    }

    fn insert(&mut self, table: &Table, values: &[ValueRef<'_>]) -> Result<()> {
        self.loader.insert_borrowed(table, values)
    }

    fn items(&mut self, item: &Table) -> Result<()> {
        for number in numbers(self.shape.items) {
            let (image, price) = (self.within(1, 10_000), self.within(100, 10_000));
            let [name, text, ..] = &mut self.texts;
            alphanumeric(&mut self.random, name, 14, 24);
            data(&mut self.random, text);
            let row = [Int4(number), Int4(image), Int4(price), Text(name), Text(text)];
            self.loader.insert_borrowed(item, &row)?;
        }
        Ok(())
    }

    /// Everything of a warehouse.
    fn warehouse(&mut self, tables: &Tables, number: i16) -> Result<()> {
        let ytd = self.shape.district_ytd() * i64::from(DISTRICTS);
        let tax = self.within(0, TAX_MAX);
        self.name_and_address();
        let [name, street_1, street_2, city, state, zip, ..] = &self.texts;
        let row = [
            Int2(number),
            Int4(tax),
            Int8(ytd),
            Text(name),
            Text(street_1),
            Text(street_2),
            Text(city),
            Text(state),
            Text(zip),
        ];
        self.loader.insert_borrowed(&tables.warehouse, &row)?;
        self.stocks(&tables.stock, number)?;
        for district in places(DISTRICTS) {
            self.district(tables, number, district)?;
        }
        Ok(())
    }

    /// Puts the name, the streets, the city, the state and the zip of a warehouse or district into the first texts.
    fn name_and_address(&mut self) {
        let [name, address @ ..] = &mut self.texts;
        alphanumeric(&mut self.random, name, 6, 10);
        let [street_1, street_2, city, in_state, code, ..] = address;
        for text in [street_1, street_2, city] {
            alphanumeric(&mut self.random, text, 10, 20);
        }
        state(&mut self.random, in_state);
        zip(&mut self.random, code);
    }

    fn stocks(&mut self, stock: &Table, warehouse: i16) -> Result<()> {
        for item in numbers(self.shape.items) {
            let quantity = self.within(10, 100);
            let [districts @ .., text] = &mut self.texts;
            districts.iter_mut().for_each(|district| letters(&mut self.random, district, 24));
            data(&mut self.random, text);
            let mut row = [Int4(0); 17];
            row[..3].copy_from_slice(&[Int2(warehouse), Int4(item), Int4(quantity)]);
            for (field, text) in row[6..].iter_mut().zip(&self.texts) {
                *field = Text(text);
            }
            self.loader.insert_borrowed(stock, &row)?;
        }
        Ok(())
    }

    /// A district with its customers and orders.
    fn district(&mut self, tables: &Tables, warehouse: i16, number: i16) -> Result<()> {
        let tax = self.within(0, TAX_MAX);
        let next_order = self.shape.customers as i32 + 1;
        let ytd = self.shape.district_ytd();
        self.name_and_address();
        let [name, street_1, street_2, city, state, zip, ..] = &self.texts;
        let row = [
            Int2(warehouse),
            Int2(number),
            Int4(tax),
            Int4(next_order),
            Int8(ytd),
            Text(name),
            Text(street_1),
            Text(street_2),
            Text(city),
            Text(state),
            Text(zip),
        ];
        self.loader.insert_borrowed(&tables.district, &row)?;
        for customer in numbers(self.shape.customers) {
            self.customer(tables, (warehouse, number), customer)?;
        }
        let mut customers: Vec<i32> = numbers(self.shape.customers).collect();
        self.random.shuffle(&mut customers);
        for (order, customer) in (1..).zip(customers) {
            self.order(tables, (warehouse, number), order, customer)?;
        }
        Ok(())
    }

    /// A customer and the history row of what was paid.
    fn customer(&mut self, tables: &Tables, (warehouse, district): (i16, i16), number: i32) -> Result<()> {
        let names = self.shape.last_names();
        let name = match number as u32 - 1 {
            first if first < names => first,
            _ => last_name_loaded(&mut self.random, names),
        };
        let last = last_name(name);
        let credit = if self.random.chance(1, 10) { "BC" } else { "GC" };
        let discount = self.within(0, DISCOUNT_MAX);
        self.name_and_address();
        let random = &mut self.random;
        let [first, street_1, street_2, city, state, zip, phone, data, paid, ..] = &mut self.texts;
        alphanumeric(random, first, 8, 16);
        digits(random, phone, 16);
        alphanumeric(random, data, 300, 500);
        alphanumeric(random, paid, 12, 24);
        let now = Timestamp(self.now_us);
        let row = [
            Int2(warehouse),
            Int2(district),
            Int4(number),
            Int4(1),
            Int4(0),
            Int8(-i64::from(PAID_CENTS)),
            Int8(i64::from(PAID_CENTS)),
            Int8(CREDIT_LIMIT_CENTS),
            Int4(discount),
            now,
            Text(first),
            Text("OE"),
            Text(&last),
            Text(street_1),
            Text(street_2),
            Text(city),
            Text(state),
            Text(zip),
            Text(phone),
            Text(credit),
            Text(data),
        ];
        self.loader.insert_borrowed(&tables.customer, &row)?;
        let place = [Int2(warehouse), Int2(district)];
        let row = [place[0], place[1], place[0], place[1], Int4(number), now, Int4(PAID_CENTS), Text(paid)];
        self.loader.insert_borrowed(&tables.history, &row)
    }

    /// An order with its lines; the last ones are new orders, too.
    fn order(
        &mut self,
        tables: &Tables,
        (warehouse, district): (i16, i16),
        number: i32,
        customer: i32,
    ) -> Result<()> {
        let is_delivered = number <= self.shape.delivered() as i32;
        let lines = self.within(5, 15) as i16;
        let now = Timestamp(self.now_us);
        let key = [Int2(warehouse), Int2(district), Int4(number)];
        let carrier = if is_delivered { Int2(self.within(1, 10) as i16) } else { Null };
        let row = [key[0], key[1], key[2], Int4(customer), now, carrier, Int2(lines), Int2(1)];
        self.insert(&tables.orders, &row)?;
        if !is_delivered {
            self.insert(&tables.new_order, &key)?;
        }
        for line in 1..=lines {
            let item = self.within(1, self.shape.items);
            let amount = if is_delivered { 0 } else { self.within(1, 999_999) };
            let delivered = if is_delivered { now } else { Null };
            let info = &mut self.texts[0];
            letters(&mut self.random, info, 24);
            let row = [
                key[0],
                key[1],
                key[2],
                Int2(line),
                Int4(item),
                Int2(warehouse),
                delivered,
                Int2(5),
                Int4(amount),
                Text(info),
            ];
            self.loader.insert_borrowed(&tables.order_line, &row)?;
        }
        Ok(())
    }
}
