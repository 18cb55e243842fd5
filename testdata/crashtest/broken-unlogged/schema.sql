-- The journal is unlogged: a crash of Postgres empties it, while the messages stay seen.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create unlogged table shop.journal (payment text not null, cents bigint not null);
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	insert into shop.accounts values (p->>'account', (p->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
	insert into shop.journal values (m.raw_id, (p->>'cents')::bigint);
end $$;
