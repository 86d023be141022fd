-- Views over the catalog of a tstore store, for the shell of DuckDB 1.4 or newer, started in the
-- folder above this one:
--
--     SET VARIABLE store = '/path/to/store';
--     .read analytics/views.sql
--
-- They show the runs that were committed when this file was read; read it again for later ones.
-- Everything made here is temporary. Sizes are bytes, ratios stored/raw. What the views mean and
-- how families are found: analytics/README.md. Each file needs those above it.

.read analytics/tables.sql
.read analytics/current.sql
.read analytics/families.sql
.read analytics/storage.sql
.read analytics/savings.sql
.read analytics/now.sql
.read analytics/quality.sql
