"""QR decomposition of a random array, and the product Q R, as in dask's documentation."""

import dask.array as da


def main() -> None:
    a = da.random.random(size=(10_000, 1_000), chunks=(1_000, 1_000))
    q, r = da.linalg.qr(a)
    product = q.dot(r).compute(scheduler="threads")
    print(f"product: {product.shape[0]:,} x {product.shape[1]:,}")


if __name__ == "__main__":
    main()
