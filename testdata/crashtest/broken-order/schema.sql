-- The till is one for all accounts, and each receipt says what is in it: that depends on the order across keys, which nobody
-- promises.
create schema shop;
create table shop.till (cents bigint not null);
insert into shop.till values (0);
create table shop.receipts (payment text primary key, till_after bigint not null);
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
	after bigint;
begin
	update shop.till set cents = cents + (p->>'cents')::bigint returning cents into after;
	insert into shop.receipts values (m.raw_id, after);
end $$;
