//! An async service that embeds Rialto: orders come as JSON, each is placed in one transaction, and is answered when it is durable.
//!
//! `cargo run --manifest-path samples/service/Cargo.toml`

use hashbrown::HashMap;
use rialto::{Database, Record, Records};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use thiserror::Error;
use tokio::task::{JoinSet, spawn_blocking};

/// A product and how many of it are in stock.
#[derive(Record, Serialize, Debug, Clone)]
#[record(table = "products")]
struct Product {
    #[record(key)]
    id: i32,
    stock: i64,
}

#[derive(Record, Serialize, Debug, Clone)]
#[record(table = "orders")]
struct Order {
    #[record(key)]
    id: i64,
    #[record(index)]
    product: i32,
    amount: i64,
}

#[derive(Deserialize)]
struct Request {
    id: i64,
    /// Products and amounts.
    items: SmallVec<[(i32, i64); 4]>,
}

#[derive(Debug, Error)]
enum Refusal {
    #[error("there is no product {0}")]
    NoSuchProduct(i32),
    #[error("product {product}: {stock} in stock, {wanted} wanted")]
    SoldOut { product: i32, stock: i64, wanted: i64 },
    #[error(transparent)]
    Database(#[from] rialto::Error),
}

#[derive(Clone)]
struct Shop {
    db: Database,
    products: Records<Product>,
    orders: Records<Order>,
}

impl Shop {
    fn open(directory: &std::path::Path) -> Result<Shop, Box<dyn std::error::Error>> {
        let db = Database::open(directory)?;
        let (products, orders) = (db.records::<Product>()?, db.records::<Order>()?);
        Ok(Shop { db, products, orders })
    }

    /// Places all items of a request, or none of them. The transaction may wait for locks, so it runs on a thread that may block; the
    /// task awaits the disk by the transaction's ticket.
    async fn place(&self, request: Request) -> Result<i64, Refusal> {
        let shop = self.clone();
        let run = move || {
            shop.db.try_submit(|tx| {
                let mut total = 0;
                for (nth, &(id, wanted)) in (0..).zip(&request.items) {
                    let mut product = shop.products.get(tx, id)?.ok_or(Refusal::NoSuchProduct(id))?;
                    if product.stock < wanted {
                        return Err(Refusal::SoldOut { product: id, stock: product.stock, wanted });
                    }
                    product.stock -= wanted;
                    shop.products.update(tx, &product)?;
                    shop.orders.insert(tx, &Order { id: request.id * 100 + nth, product: id, amount: wanted })?;
                    total += wanted;
                }
                Ok(total)
            })
        };
        let (total, ticket) = spawn_blocking(run).await.expect("the transaction does not panic")?;
        ticket.await?;
        Ok(total)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let process = rustix::process::getpid().as_raw_pid();
    let directory = std::env::temp_dir().join(format!("rialto-sample-service-{process}"));
    let shop = Shop::open(&directory)?;
    shop.db.transact(|tx| {
        (1..=3).try_for_each(|id| shop.products.insert(tx, &Product { id, stock: 100 * i64::from(id) }))
    })?;

    // Clients place 50 orders at the same time; there is stock for 20 of them.
    let mut clients = JoinSet::new();
    for id in 0..50 {
        let shop = shop.clone();
        let request = serde_json::from_str(&format!(r#"{{"id": {id}, "items": [[3, 1], [1, 5], [2, 2]]}}"#))?;
        clients.spawn(async move { shop.place(request).await });
    }
    let mut told: HashMap<String, u32> = HashMap::new();
    while let Some(outcome) = clients.join_next().await {
        let outcome = outcome?.map_or_else(|refusal| refusal.to_string(), |total| format!("{total} ordered"));
        *told.entry(outcome).or_default() += 1;
    }
    println!("{told:?}");
    assert_eq!(told.get("8 ordered"), Some(&20));
    assert_eq!(told.get("product 1: 0 in stock, 5 wanted"), Some(&30));

    let left: Vec<Product> = shop.db.read(|tx| {
        shop.products.rows(tx, &rialto::Scan::all())?.collect::<Result<_, _>>()
    })?;
    println!("{}", serde_json::to_string(&left)?);
    let of_first = shop.db.read(|tx| {
        shop.orders.rows_by(tx, "orders_product_idx", 1)?.map(|order| Ok(order?.amount)).sum::<Result<i64, _>>()
    })?;
    assert_eq!(of_first, 100);

    shop.db.close()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
