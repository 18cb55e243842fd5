-- Each payment is booked, and a receipt is to be sent under an ID that follows from it.
create schema shop;
create table shop.accounts (account text primary key, cents bigint not null);
create function shop.book(m firstseen.message) returns void language plpgsql as $$
declare
	p jsonb := firstseen.body(m);
begin
	insert into shop.accounts values (p->>'account', (p->>'cents')::bigint)
	on conflict (account) do update set cents = accounts.cents + excluded.cents;
	perform firstseen.send('receipts', jsonb_build_object('payment', m.raw_id), p->>'account', 'receipt-' || m.raw_id);
end $$;
