-- The receiver of the webhook keeps the key of each call in the transaction in which it books, and books none twice.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create table shop.received (key uuid primary key);
create function shop.receive(key uuid, body jsonb) returns void language plpgsql as $$
begin
	insert into shop.received values (receive.key) on conflict do nothing;
	if not found then
		return;
	end if;
	insert into shop.accounts values (body->>'account', (body->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
end $$;
