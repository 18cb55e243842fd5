-- The receiver of the webhook books what it is sent, each time that it is sent it.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create function shop.receive(key text, body jsonb) returns void language plpgsql as $$
begin
	insert into shop.accounts values (body->>'account', (body->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
end $$;
